//! Fetched values: one task per request of the configuration, and the reports to the control thread.
//!
//! Runs on the control runtime. A value that objects are built from is an input of compilation, like an address;
//! requests read the others from their cells.

mod http_document;
mod ledger;
mod saved_documents;
mod schedule;
mod secrets;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};
use yumen_outbound::TlsClients;
use yumen_plugin::{FetchDelivery, FetchRequest, FetchSource, FetchedCell, FetchedValue};
use yumen_proxy::clock;
use yumen_snapshot::compile::{FetchFailure, FetchedResult};

use crate::endpoints::inputs::{KnownDocument, KnownDocuments};
use ledger::{FetchAsk, FetchStanding};
pub(crate) use ledger::{FetchLedger, describe};
use saved_documents::SavedDocuments;
use schedule::FetchSchedule;
use secrets::SecretManagers;

/// Maximum number of concurrent fetches.
const FETCHES_MAX: usize = 32;
/// Maximum number of concurrent fetches from one server.
const FETCHES_PER_SERVER: usize = 4;
/// Time to wait for a first answer before a saved document is used.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// A value to fetch.
#[derive(Debug, Clone)]
pub(crate) struct RequiredFetch {
    /// Number of the request. A changed number invalidates earlier results.
    pub(crate) number: u64,
    pub(crate) cell: Arc<FetchedCell>,
}

impl PartialEq for RequiredFetch {
    fn eq(&self, other: &RequiredFetch) -> bool {
        self.number == other.number && Arc::ptr_eq(&self.cell, &other.cell)
    }
}

/// Values to fetch, by request.
pub(crate) type RequiredFetches = Arc<BTreeMap<Arc<FetchRequest>, RequiredFetch>>;

/// A body with its lifetime, from a source.
#[derive(Debug, Default)]
struct FetchedBody {
    bytes: Vec<u8>,
    /// Lifetime by the server, in seconds.
    max_age_s: Option<u32>,
}

/// A stable name of a request: SHA-256 over all its parts, in Base64. A name in a file shows no credentials.
pub(crate) fn digest(request: &FetchRequest) -> String {
    let mut hash = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    // Each part begins with its length, so that no two lists of parts give the same bytes.
    let mut add = |part: &str| {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    };
    add(request.format.name);
    match &request.source {
        FetchSource::Http(fetch) => {
            add("http");
            add(&fetch.url);
            add(if fetch.verify { "verify" } else { "" });
            add(fetch.ca_pem.as_deref().unwrap_or_default());
            let proxy = fetch.proxy.as_ref();
            add(&proxy.map(|proxy| format!("{}:{}", proxy.host, proxy.port)).unwrap_or_default());
            for (name, value) in &fetch.fields {
                add(name);
                add(value);
            }
        }
        FetchSource::Secret(fetch) => {
            add("secret");
            add(&fetch.manager);
            add(&fetch.settings);
            add(&fetch.key);
        }
    }
    BASE64.encode(hash.finish())
}

type Report = Box<dyn Fn(Arc<FetchRequest>, FetchedResult) + Send + Sync>;

/// Fetched values of a process: their tasks and state.
pub(crate) struct FetchService {
    ledger: Arc<FetchLedger>,
    /// Bodies of the predecessor.
    inherited: Mutex<KnownDocuments>,
    saved: SavedDocuments,
    tls: TlsClients,
    managers: SecretManagers,
    permits: Semaphore,
    /// Permits by server.
    servers: Mutex<HashMap<String, Arc<Semaphore>>>,
    random: RandomState,
    report: Report,
}

/// A running task of one request.
struct FetchTask {
    number: u64,
    task: AbortHandle,
    asked: Arc<FetchSignals>,
}

/// Signals to the task of one value.
#[derive(Default)]
struct FetchSignals {
    /// Asks for a fetch now.
    fetch: Notify,
    /// Drops the known value first.
    forget: AtomicBool,
}

/// Fetches the required values until the sender of `required` is dropped. Calls `report` with the first result of each
/// request and with every change. Values in `known`, or else those saved by an earlier run, serve while a server does
/// not answer.
pub(crate) async fn run_fetching(
    required: watch::Receiver<RequiredFetches>,
    data_dir: PathBuf,
    ledger: Arc<FetchLedger>,
    known: KnownDocuments,
    report: impl Fn(Arc<FetchRequest>, FetchedResult) + Send + Sync + 'static,
) {
    let asks = ledger.listen();
    let service = Arc::new(FetchService {
        ledger,
        inherited: Mutex::new(known),
        saved: SavedDocuments::open(&data_dir),
        tls: TlsClients::default(),
        managers: SecretManagers::default(),
        permits: Semaphore::new(FETCHES_MAX),
        servers: Mutex::default(),
        random: RandomState::new(),
        report: Box::new(report),
    });
    service.run(required, asks).await;
}

impl FetchService {
    async fn run(
        self: Arc<Self>,
        mut required: watch::Receiver<RequiredFetches>,
        mut asks: UnboundedReceiver<(Arc<FetchRequest>, FetchAsk)>,
    ) {
        let mut tasks = JoinSet::new();
        tasks.spawn(self.clone().save());
        let mut running: HashMap<Arc<FetchRequest>, FetchTask> = HashMap::new();
        loop {
            let now = required.borrow_and_update().clone();
            running.retain(|request, running| {
                // See `dns::keep_resolved`: a new number means a new request.
                let stays = now.get(request).is_some_and(|required| required.number == running.number);
                if !stays {
                    running.task.abort();
                    self.ledger.forget(request);
                }
                stays
            });
            for (request, RequiredFetch { number, cell }) in now.iter() {
                if !running.contains_key(request) {
                    let asked = Arc::<FetchSignals>::default();
                    let keeping = self.clone().keep(request.clone(), cell.clone(), asked.clone());
                    let task = tasks.spawn(keeping);
                    running.insert(request.clone(), FetchTask { number: *number, task, asked });
                }
            }
            // The JoinSet keeps results of finished tasks until they are joined.
            while tasks.try_join_next().is_some() {}
            loop {
                tokio::select! {
                    changed = required.changed() => match changed {
                        Ok(()) => break,
                        Err(_) => return,
                    },
                    // Never closed: the ledger holds a sender.
                    Some((request, ask)) = asks.recv() => {
                        if let Some(running) = running.get(&request) {
                            running.asked.forget.fetch_or(ask == FetchAsk::Forget, Ordering::Relaxed);
                            running.asked.fetch.notify_one();
                        }
                    }
                }
            }
        }
    }

    /// Keeps one value up to date; never returns.
    async fn keep(
        self: Arc<Self>,
        request: Arc<FetchRequest>,
        cell: Arc<FetchedCell>,
        asked: Arc<FetchSignals>,
    ) {
        let (ledger, named) = (self.ledger.clone(), request.clone());
        cell.set_refresh(move || ledger.ask(&named, FetchAsk::Refresh));
        let mut schedule = FetchSchedule::new(request.refresh.interval_s, now_ms());
        let mut standing = FetchStanding::default();
        // A value that this version cannot parse is fetched at once.
        let inherited = self.take_inherited(&request);
        if let Some(inherited) = inherited.filter(|body| (request.format.parse)(&body.bytes).is_ok()) {
            // The control thread compiles inherited values itself.
            schedule.resume(inherited.fetched_ms, self.lot(&request, 0));
            standing.body = Some(inherited);
            standing.is_reported = true;
            self.ledger.note(&request, &standing);
        }
        let mut asked_at = None;
        loop {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(schedule.pause_ms(now_ms()))) => {}
                () = asked.fetch.notified() => {
                    if asked.forget.swap(false, Ordering::Relaxed) {
                        self.forget(&request, &mut standing);
                    }
                    schedule.ask(now_ms());
                    asked_at = Some(Instant::now());
                    continue;
                }
            }
            // A fetch that was asked for takes no response from before.
            let asked_at = asked_at.take();
            let fetched = self.fetch_first(&request, &mut standing, asked_at).await;
            let body = fetched.and_then(|body| {
                let parsed = (request.format.parse)(&body.bytes).map_err(|message| FetchFailure {
                    message: format!("invalid {}: {message}", request.format.name).into(),
                    is_absent: false,
                });
                parsed.map(|value| (body, value))
            });
            let lot = self.lot(&request, schedule.fetches());
            let result = match body {
                Ok((body, value)) => {
                    schedule.succeeded(now_ms(), body.max_age_s, lot);
                    self.succeeded(&request, &cell, &mut standing, body, value, asked_at.is_some())
                }
                Err(failure) => {
                    schedule.failed(now_ms(), lot);
                    self.failed(&request, &mut standing, failure)
                }
            };
            self.ledger.note(&request, &standing);
            if let Some(result) = result {
                (self.report)(request.clone(), result);
            }
        }
    }

    /// Fetches a value. Before its first answer, a saved document is reported after `FIRST_ANSWER`.
    async fn fetch_first(
        &self,
        request: &Arc<FetchRequest>,
        standing: &mut FetchStanding,
        asked_at: Option<Instant>,
    ) -> Result<FetchedBody, FetchFailure> {
        let saved = match standing.body.is_none() && !standing.is_reported {
            true => self.saved.take(&digest(request)),
            false => None,
        };
        let Some(saved) = saved else { return self.fetch(request, asked_at).await };
        let mut fetching = std::pin::pin!(self.fetch(request, asked_at));
        let result = match tokio::time::timeout(FIRST_ANSWER, &mut fetching).await {
            Ok(Ok(body)) => return Ok(body),
            Ok(Err(failure)) => Some(failure),
            Err(_) => None,
        };
        if let Ok(value) = (request.format.parse)(&saved.bytes) {
            tracing::warn!(source = %request.source, "saved document used: its server has not answered");
            standing.body = Some(saved);
            standing.is_reported = true;
            self.ledger.note(request, standing);
            (self.report)(request.clone(), FetchedResult { value: Some(value), ..FetchedResult::default() });
        }
        match result {
            Some(failure) => Err(failure),
            None => fetching.await,
        }
    }

    async fn fetch(
        &self,
        request: &FetchRequest,
        asked_at: Option<Instant>,
    ) -> Result<FetchedBody, FetchFailure> {
        let started = Instant::now();
        let since = asked_at.unwrap_or_else(|| started.checked_sub(secrets::ROUND).unwrap_or(started));
        let server = self.server(&request.source);
        // Neither semaphore is closed. The server's first, so that a hanging server does not hold all permits.
        let _of_server = server.acquire().await;
        let _of_all = self.permits.acquire().await;
        match &request.source {
            FetchSource::Http(fetch) => {
                http_document::fetch(fetch, request.format.bytes_max, &self.tls).await
            }
            FetchSource::Secret(fetch) => {
                let body = self.managers.fetch(fetch, &self.tls, since).await?;
                match body.bytes.len() > request.format.bytes_max {
                    true => Err(FetchFailure { message: "the value is too long".into(), is_absent: false }),
                    false => Ok(body),
                }
            }
        }
    }

    fn server(&self, source: &FetchSource) -> Arc<Semaphore> {
        let name = match source {
            FetchSource::Http(fetch) => {
                let rest = fetch.url.split_once("://").map_or(&*fetch.url, |(_, rest)| rest);
                rest.split(['/', '?']).next().unwrap_or_default().to_owned()
            }
            FetchSource::Secret(fetch) => fetch.manager.clone(),
        };
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        // Servers without a fetch in progress are forgotten, so that the table follows the configuration.
        servers.retain(|_, permits| Arc::strong_count(permits) > 1);
        servers.entry(name).or_insert_with(|| Arc::new(Semaphore::new(FETCHES_PER_SERVER))).clone()
    }

    fn take_inherited(&self, request: &FetchRequest) -> Option<KnownDocument> {
        let mut inherited = self.inherited.lock().unwrap_or_else(PoisonError::into_inner);
        if inherited.is_empty() { None } else { inherited.remove(&digest(request)) }
    }

    /// Takes a value over; returns the report to the control thread, if anything changed.
    fn succeeded(
        &self,
        request: &FetchRequest,
        cell: &FetchedCell,
        standing: &mut FetchStanding,
        body: FetchedBody,
        value: FetchedValue,
        answers_request: bool,
    ) -> Option<FetchedResult> {
        if standing.failing_since_ms.is_some() {
            tracing::info!(source = %request.source, "fetched value refreshed again");
        }
        let is_new = standing.body.as_ref().is_none_or(|known| known.bytes != body.bytes);
        let was_reported = standing.is_reported && standing.reported.is_none();
        standing.succeeded(KnownDocument { bytes: body.bytes, fetched_ms: now_ms() }, is_new);
        self.saved.changed(is_new && is_public(request));
        let in_place = request.delivery == FetchDelivery::InPlace;
        // A request that asked for a fetch waits for the next generation, whether the value changed or not.
        if in_place && (is_new || answers_request) {
            cell.store(value.clone());
        }
        standing.is_reported = true;
        standing.reported = None;
        let value = Some(value).filter(|_| is_new && !in_place);
        // Also a first result without news: the start of the process waits for it.
        (value.is_some() || !was_reported).then_some(FetchedResult { value, ..FetchedResult::default() })
    }

    /// Drops the value for the objects that use it. It comes back if its server still has it.
    fn forget(&self, request: &Arc<FetchRequest>, standing: &mut FetchStanding) {
        tracing::warn!(source = %request.source, "value forgotten by an operator");
        standing.body = None;
        let failure = Some(FetchFailure { message: "its value was forgotten".into(), is_absent: false });
        standing.reported.clone_from(&failure);
        standing.is_reported = true;
        self.ledger.note(request, standing);
        (self.report)(request.clone(), FetchedResult { failure, forgets: true, ..FetchedResult::default() });
    }

    /// Notes a failure; returns the report to the control thread, if it changes a problem.
    fn failed(
        &self,
        request: &FetchRequest,
        standing: &mut FetchStanding,
        failure: FetchFailure,
    ) -> Option<FetchedResult> {
        let now_ms = now_ms();
        // Logged once per outage.
        if standing.failing_since_ms.is_none() {
            tracing::warn!(source = %request.source, error = %failure.message, "value cannot be fetched");
        }
        standing.failed(&failure.message, now_ms);
        let failure = standing.reportable(failure, request.refresh.interval_s, now_ms);
        let is_first = !std::mem::replace(&mut standing.is_reported, true);
        if !is_first && standing.reported == failure {
            return None;
        }
        standing.reported.clone_from(&failure);
        Some(FetchedResult { failure, ..FetchedResult::default() })
    }

    /// A number from 0 to 1. Keys of one secret have equal numbers, so that one request serves their refresh.
    fn lot(&self, request: &FetchRequest, fetches: u64) -> f64 {
        let source = match &request.source {
            FetchSource::Http(fetch) => (fetch.url.as_str(), ""),
            FetchSource::Secret(fetch) => {
                (fetch.manager.as_str(), fetch.key.rsplit_once('/').map_or("", |(path, _)| path))
            }
        };
        f64::from(self.random.hash_one((source, fetches)) as u32) / f64::from(u32::MAX)
    }

    /// Saves the public documents to disk after changes; never returns.
    async fn save(self: Arc<Self>) {
        loop {
            self.saved.until_changed().await;
            let service = self.clone();
            // File I/O blocks, so it runs on a blocking thread.
            let write = move || service.saved.save(&service.ledger.documents(is_public));
            let _ = tokio::task::spawn_blocking(write).await;
        }
    }
}

/// Whether a value may be written to disk: a document that is fetched without credentials.
fn is_public(request: &FetchRequest) -> bool {
    matches!(&request.source, FetchSource::Http(fetch) if fetch.fields.is_empty())
}

fn now_ms() -> u64 {
    clock::exact().unix_ms
}
