use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use yumen_base::Now;
use yumen_plugin::{
    FetchDelivery, FetchFormat, FetchRefresh, FetchRequest, FetchSource, FetchedCell, FetchedValue,
    HttpFetch, SecretFetch,
};
use yumen_snapshot::compile::FetchedResult;

use super::{FetchLedger, RequiredFetch, RequiredFetches, digest, run_fetching};
use crate::endpoints::inputs::{KnownDocument, KnownDocuments};

/// Time limit of one wait; a test that meets it fails.
const WITHIN: Duration = Duration::from_secs(10);

/// Accepts any text but `bad`.
fn parse(bytes: &[u8]) -> Result<FetchedValue, String> {
    match bytes {
        b"bad" => Err("bad text".to_owned()),
        _ => Ok(Arc::new(String::from_utf8_lossy(bytes).into_owned())),
    }
}

fn request(url: &str, delivery: FetchDelivery) -> Arc<FetchRequest> {
    let fetch = HttpFetch {
        url: url.to_owned(),
        fields: Vec::new(),
        verify: true,
        ca_pem: None,
        proxy: None,
        timeout_ms: 2000,
    };
    Arc::new(FetchRequest {
        source: FetchSource::Http(Box::new(fetch)),
        format: FetchFormat { name: "text", bytes_max: 100, parse },
        delivery,
        refresh: FetchRefresh { interval_s: 1 },
    })
}

/// Serves each text once, the last one for ever. An empty text closes the connection.
async fn server(texts: &[&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut texts: VecDeque<String> = texts.iter().map(|text| (*text).to_owned()).collect();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let text = if texts.len() > 1 { texts.pop_front().unwrap() } else { texts[0].clone() };
            let mut head = vec![0; 4096];
            let _ = stream.read(&mut head).await;
            if !text.is_empty() {
                let length = text.len();
                let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{text}");
                let _ = stream.write_all(reply.as_bytes()).await;
            }
        }
    });
    format!("http://{address}/document")
}

/// The fetching of one request, and its reports: `value`, `failure: …` or `nothing new`.
struct Fetching {
    cell: Arc<FetchedCell>,
    reports: mpsc::UnboundedReceiver<String>,
    ledger: Arc<FetchLedger>,
    _required: watch::Sender<RequiredFetches>,
}

impl Fetching {
    fn start(request: &Arc<FetchRequest>, known: KnownDocuments) -> Fetching {
        let (cell, ledger) = (Arc::<FetchedCell>::default(), Arc::<FetchLedger>::default());
        let required: RequiredFetches =
            Arc::new([(request.clone(), RequiredFetch { number: 1, cell: cell.clone() })].into());
        let (required, receiver) = watch::channel(required);
        let (sender, reports) = mpsc::unbounded_channel();
        let report = move |_, result: FetchedResult| drop(sender.send(text(&result)));
        // No data directory: nothing is saved.
        tokio::spawn(run_fetching(receiver, "/nonexistent".into(), ledger.clone(), known, report));
        Fetching { cell, reports, ledger, _required: required }
    }

    async fn next(&mut self) -> String {
        tokio::time::timeout(WITHIN, self.reports.recv()).await.expect("a report in time").unwrap()
    }
}

fn text(result: &FetchedResult) -> String {
    match (&result.value, &result.failure) {
        (Some(value), None) => value.downcast_ref::<String>().unwrap().clone(),
        (None, Some(failure)) => format!("failure: {}", failure.message),
        (None, None) => "nothing new".to_owned(),
        (Some(_), Some(_)) => "both".to_owned(),
    }
}

#[tokio::test]
async fn values_are_reported_when_they_change_and_bad_ones_never_replace_them() {
    let url = server(&["one", "one", "bad", "two"]).await;
    let mut fetching = Fetching::start(&request(&url, FetchDelivery::Rebuild), KnownDocuments::default());
    assert_eq!(fetching.next().await, "one");
    // The equal value and the first failure are no news, the value of the last fetch is.
    assert_eq!(fetching.next().await, "two");
}

#[tokio::test]
async fn failures_are_reported_at_once_without_a_value_and_end_with_one() {
    let url = server(&["bad", "bad", "one"]).await;
    let mut fetching = Fetching::start(&request(&url, FetchDelivery::Rebuild), KnownDocuments::default());
    assert_eq!(fetching.next().await, "failure: invalid text: bad text");
    assert_eq!(fetching.next().await, "one");
}

#[tokio::test]
async fn a_stale_value_is_a_failure_until_it_is_refreshed() {
    let url = server(&["one", "", "", "", "", "one"]).await;
    let mut fetching = Fetching::start(&request(&url, FetchDelivery::Rebuild), KnownDocuments::default());
    assert_eq!(fetching.next().await, "one");
    let failure = fetching.next().await;
    assert!(failure.starts_with("failure: ") && failure.ends_with("stays in use"), "{failure}");
    assert_eq!(fetching.next().await, "nothing new", "the failure ends, the value is equal");
}

#[tokio::test]
async fn requests_that_ask_for_a_fetch_see_a_new_generation() {
    let url = server(&["one"]).await;
    let mut request = request(&url, FetchDelivery::InPlace);
    Arc::get_mut(&mut request).unwrap().refresh.interval_s = 3600;
    let mut fetching = Fetching::start(&request, KnownDocuments::default());
    assert_eq!(fetching.next().await, "nothing new", "the cell has the value");
    assert_eq!(fetching.cell.generation(), 1);
    assert!(fetching.cell.request_refresh(Now { mono_us: 0, unix_ms: 0 }));
    let newer = async {
        while fetching.cell.generation() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WITHIN, newer).await.expect("a newer generation");
}

#[tokio::test]
async fn an_inherited_value_is_kept_and_handed_on() {
    let url = server(&["two"]).await;
    let request = request(&url, FetchDelivery::Rebuild);
    let document = KnownDocument { bytes: b"one".to_vec(), fetched_ms: super::now_ms() };
    let known: KnownDocuments = [(digest(&request), document)].into();
    let mut fetching = Fetching::start(&request, known.clone());
    // The next fetch is due at the interval, so the first report is the changed value.
    assert_eq!(fetching.next().await, "two");
    assert_eq!(fetching.ledger.documents(|_| true).len(), 1);
    assert!(fetching.ledger.documents(|_| false).is_empty());
}

#[test]
fn requests_have_digests_of_their_own() {
    let plain = request("http://a.test/", FetchDelivery::Rebuild);
    let secret = |manager: &str, key: &str| FetchRequest {
        source: FetchSource::Secret(Box::new(SecretFetch {
            manager: manager.to_owned(),
            settings: "{}".into(),
            key: key.to_owned(),
        })),
        ..FetchRequest::clone(&plain)
    };
    let all = [
        FetchRequest::clone(&plain),
        FetchRequest::clone(&request("http://b.test/", FetchDelivery::Rebuild)),
        secret("vault/1", "a"),
        secret("vault/1", "b"),
        // Without lengths, both would be the same bytes.
        secret("vault", "/1a"),
    ];
    let digests: Mutex<std::collections::BTreeSet<String>> = Mutex::default();
    for one in &all {
        assert!(digests.lock().unwrap().insert(digest(one)), "{one:?}");
        assert_eq!(digest(one), digest(&one.clone()));
    }
}
