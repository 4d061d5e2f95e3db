//! The control thread: it alone holds the compiler. Changes come in from every door; snapshots go out.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use yumen_base::metric::{Family, Gather, MetricKind, Sample, Value};
use yumen_base::{Histogram, Level, Problem};
use yumen_config::{Kind, Resource, document};
use yumen_plugin::Carry;
use yumen_snapshot::compile::{Change, Compiler};
use yumen_snapshot::{Publisher, Snapshot, policy};

use crate::compiler;

/// The families of this module, without values, for the reference.
pub(crate) fn describe(out: &mut Vec<Family>) {
    Shown::new(Arc::default()).gather(out);
}

/// What doors tell the control thread.
pub(crate) enum Message {
    /// The resource file holds this.
    Document(String),
    /// The resource file cannot be used; what is in force stays.
    DocumentFault(String),
    /// The resource file can be used again and holds what it held.
    DocumentRecovered,
    /// A host name has these addresses.
    Resolved(Box<str>, Vec<IpAddr>),
}

/// Upper bounds of compile times, in microseconds.
static COMPILE_BOUNDS_US: &[u64] =
    &[100, 250, 500, 1_000, 2_500, 5_000, 10_000, 50_000, 100_000, 500_000, 1_000_000, 5_000_000];

/// Host names whose addresses are wanted.
pub(crate) type Hosts = Arc<BTreeSet<Box<str>>>;

/// What the control thread shows to everyone else.
pub(crate) struct Shown {
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) revision: AtomicU64,
    pub(crate) problems: Mutex<Vec<Problem>>,
    compile: Histogram,
    compile_last_us: AtomicU64,
    unresolved: AtomicU64,
}

impl Shown {
    fn new(publisher: Arc<Publisher>) -> Shown {
        Shown {
            publisher,
            revision: AtomicU64::new(0),
            problems: Mutex::default(),
            compile: Histogram::new(COMPILE_BOUNDS_US),
            compile_last_us: AtomicU64::new(0),
            unresolved: AtomicU64::new(0),
        }
    }

    /// The findings in force.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        self.problems.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The doors' end of the control thread.
#[derive(Clone)]
pub(crate) struct Control {
    pub(crate) messages: Sender<Message>,
    pub(crate) shown: Arc<Shown>,
    pub(crate) snapshots: watch::Receiver<Arc<Snapshot>>,
    pub(crate) hosts: watch::Receiver<Hosts>,
}

impl Control {
    /// How many host names have no address yet.
    pub(crate) fn unresolved(&self) -> u64 {
        self.shown.unresolved.load(Ordering::Acquire)
    }
}

struct Thread {
    compiler: Compiler,
    carry: Arc<Carry>,
    shown: Arc<Shown>,
    snapshots: watch::Sender<Arc<Snapshot>>,
    hosts: watch::Sender<Hosts>,
    /// The findings of the document itself, beside those of its objects.
    document_problems: Vec<Problem>,
    /// Snapshots some worker may still hold: freeing a table is this thread's business.
    retired: Vec<Arc<Snapshot>>,
    /// Host names that were looked up at least once, with or without success.
    looked_up: BTreeSet<Box<str>>,
}

/// Starts the control thread.
pub(crate) fn start(
    compiler: Compiler,
    carry: Arc<Carry>,
    publisher: Arc<Publisher>,
) -> std::io::Result<Control> {
    let (messages, inbox) = channel();
    let (snapshots_out, snapshots) = watch::channel(publisher.load());
    let (hosts_out, hosts) = watch::channel(Hosts::default());
    let shown = Arc::new(Shown::new(publisher));
    let thread = Thread {
        compiler,
        carry,
        shown: shown.clone(),
        snapshots: snapshots_out,
        hosts: hosts_out,
        document_problems: Vec::new(),
        retired: Vec::new(),
        looked_up: BTreeSet::new(),
    };
    std::thread::Builder::new().name("yumen-control".into()).spawn(move || thread.run(&inbox))?;
    Ok(Control { messages, shown, snapshots, hosts })
}

impl Thread {
    fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            match inbox.recv_timeout(Duration::from_secs(1)) {
                Ok(message) => {
                    let mut batch = vec![message];
                    batch.extend(inbox.try_iter());
                    self.handle(batch);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.retired.retain(|snapshot| Arc::strong_count(snapshot) > 1);
        }
    }

    /// Of several documents only the last counts.
    fn handle(&mut self, batch: Vec<Message>) {
        let mut text = None;
        let mut resolved = Vec::new();
        for message in batch {
            match message {
                Message::Document(new) => text = Some(new),
                Message::DocumentFault(fault) => self.refuse(vec![Problem::error("file", "", fault)]),
                Message::DocumentRecovered => {
                    tracing::info!("resource file usable again");
                    self.document_problems.clear();
                    self.show();
                }
                Message::Resolved(host, addrs) => {
                    self.looked_up.insert(host.clone());
                    resolved.push(Change::Resolved { host, addrs });
                }
            }
        }
        if let Some(text) = text {
            self.replace(&text);
        }
        if !resolved.is_empty() {
            self.compile("addresses resolved", resolved);
        }
    }

    fn replace(&mut self, text: &str) {
        let started = Instant::now();
        let (resources, problems) = document::parse(text, &compiler::environment);
        let is_unreadable = |problem: &Problem| problem.object == "file" && problem.level == Level::Error;
        if problems.iter().any(is_unreadable) {
            return self.refuse(problems);
        }
        let failed = self.failing_tests(&resources);
        if !failed.is_empty() {
            return self.refuse(problems.into_iter().chain(failed).collect());
        }
        let objects = resources.len();
        let changes = self.compiler.diff(resources);
        let (changed, read_us) = (changes.len(), started.elapsed().as_micros() as u64);
        tracing::info!(objects, changed, read_us, "resource file read");
        self.document_problems = problems;
        self.compile("configuration applied", changes);
    }

    /// What the tests of a document find, compiled for itself: what is in force, and its counters, have
    /// no part in that, so `yumen check` says the same.
    fn failing_tests(&self, resources: &[Resource]) -> Vec<Problem> {
        if resources.iter().all(|resource| resource.kind != Kind::Tests) {
            return Vec::new();
        }
        let snapshot = self.compiler.fresh().replace_all(resources.to_vec(), 0).snapshot;
        policy::run(&snapshot, resources, yumen_proxy::clock::exact())
    }

    /// The document says nothing that can be used: what is in force stays.
    fn refuse(&mut self, problems: Vec<Problem>) {
        tracing::error!("resource file not usable, the last good configuration stays in force");
        log(&problems);
        self.document_problems = problems;
        self.show();
    }

    fn compile(&mut self, event: &'static str, changes: Vec<Change>) {
        let started = Instant::now();
        let revision = self.shown.revision.load(Ordering::Relaxed) + 1;
        let compiled = self.compiler.apply(changes, revision);
        let before = self.shown.publisher.publish(compiled.snapshot.clone());
        let compile_us = started.elapsed().as_micros() as u64;
        self.shown.compile.observe(compile_us);
        self.shown.compile_last_us.store(compile_us, Ordering::Relaxed);
        self.retired.push(before);
        // Nobody listening is no fault.
        let _ = self.snapshots.send(compiled.snapshot);
        let hosts: BTreeSet<Box<str>> = self.compiler.hosts().map(Box::from).collect();
        self.looked_up.retain(|host| hosts.contains(host));
        self.shown.unresolved.store((hosts.len() - self.looked_up.len()) as u64, Ordering::Release);
        self.hosts.send_if_modified(|known| {
            let is_new = **known != hosts;
            *known = Arc::new(hosts);
            is_new
        });
        self.shown.revision.store(revision, Ordering::Release);
        self.show();
        let (problems, carried) = (self.shown.problems().len(), self.carry.len());
        tracing::info!(revision, compile_us, problems, carried, "{event}");
        log(&self.document_problems);
        log(&compiled.problems);
    }

    fn show(&self) {
        let mut all = self.document_problems.clone();
        all.extend(self.compiler.problems());
        *self.shown.problems.lock().unwrap_or_else(PoisonError::into_inner) = all;
    }
}

/// Problems in the log, each with all it says; bounded, since the status listener has them all.
fn log(problems: &[Problem]) {
    const LOGGED_MAX: usize = 20;
    for problem in problems.iter().take(LOGGED_MAX) {
        let Problem { object, path, message, hint, .. } = problem;
        let hint = hint.as_deref().unwrap_or_default();
        match problem.level {
            Level::Error => tracing::error!(object, path, message, hint, "configuration problem"),
            Level::Warning => tracing::warn!(object, path, message, hint, "configuration problem"),
        }
    }
    if problems.len() > LOGGED_MAX {
        tracing::warn!(more = problems.len() - LOGGED_MAX, "more configuration problems");
    }
}

impl Gather for Shown {
    fn gather(&self, out: &mut Vec<Family>) {
        let mut family = |name: &'static str, help: &'static str, kind, samples| {
            out.push(Family { name: name.into(), help: help.into(), kind, samples });
        };
        let one = |value| vec![Sample { labels: Vec::new(), value }];
        let mut cumulated = 0;
        let counts: Vec<u64> = self.compile.counts().collect();
        let buckets = COMPILE_BOUNDS_US.iter().zip(&counts).map(|(bound, count)| {
            cumulated += count;
            (*bound as f64 / 1e6, cumulated)
        });
        let compile = Value::Buckets {
            buckets: buckets.collect(),
            sum: self.compile.sum() as f64 / 1e6,
            count: counts.iter().sum(),
        };
        family(
            "yumen_config_compile_seconds",
            "Compiling and publishing one change of configuration.",
            MetricKind::Histogram,
            one(compile),
        );
        family(
            "yumen_config_compile_last_seconds",
            "Compiling and publishing the last change of configuration.",
            MetricKind::Gauge,
            one(Value::Number(self.compile_last_us.load(Ordering::Relaxed) as f64 / 1e6)),
        );
        family(
            "yumen_config_revision",
            "Revision of the configuration in force.",
            MetricKind::Gauge,
            one(Value::Number(self.revision.load(Ordering::Relaxed) as f64)),
        );
        let problems = self.problems();
        let level = |level: Level, name: &str| Sample {
            labels: vec![("level", name.to_owned())],
            value: Value::Number(problems.iter().filter(|problem| problem.level == level).count() as f64),
        };
        family(
            "yumen_config_problems",
            "Problems of the configuration in force.",
            MetricKind::Gauge,
            vec![level(Level::Error, "error"), level(Level::Warning, "warning")],
        );
    }
}
