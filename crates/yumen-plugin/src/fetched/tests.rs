use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yumen_base::Now;

use super::{
    FetchDelivery, FetchFormat, FetchRefresh, FetchRequest, FetchSource, FetchedCell, FetchedCells, HttpFetch,
};

fn at(mono_ms: u64) -> Now {
    Now { mono_us: mono_ms * 1000, unix_ms: 0 }
}

#[test]
fn a_stored_value_replaces_the_last_one_and_counts() {
    let cell = FetchedCell::default();
    assert_eq!((cell.load().is_none(), cell.generation()), (true, 0));
    cell.store(Arc::new(1_u8));
    cell.store(Arc::new(2_u8));
    assert_eq!(cell.generation(), 2);
    assert_eq!(cell.load().unwrap().downcast_ref::<u8>(), Some(&2));
}

#[test]
fn requests_ask_for_a_fetch_once_in_ten_seconds() {
    let cell = FetchedCell::default();
    assert!(!cell.request_refresh(at(0)), "no fetcher yet");
    let asked = Arc::new(AtomicU64::new(0));
    let counter = asked.clone();
    cell.set_refresh(move || {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    for (mono_ms, expected) in [(0, true), (1, false), (9_999, false), (10_000, true), (10_001, false)] {
        assert_eq!(cell.request_refresh(at(mono_ms)), expected, "at {mono_ms} ms");
    }
    assert_eq!(asked.load(Ordering::Relaxed), 2);
}

fn document(url: &str) -> FetchRequest {
    let format = FetchFormat { name: "text", bytes_max: 10, parse: |_| Err(String::new()) };
    let fetch = HttpFetch {
        url: url.to_owned(),
        fields: Vec::new(),
        verify: true,
        ca_pem: None,
        proxy: None,
        timeout_ms: 1000,
    };
    FetchRequest {
        source: FetchSource::Http(Box::new(fetch)),
        format,
        delivery: FetchDelivery::Rebuild,
        refresh: FetchRefresh { interval_s: 60 },
    }
}

#[test]
fn a_place_shows_no_credentials() {
    for (url, expected) in [
        ("https://idp.test/a/jwks?token=x#y", "https://idp.test/a/jwks"),
        ("http://user:pass@idp.test:81/", "http://idp.test:81/"),
        ("http://user:p@ss@idp.test", "http://idp.test"),
        ("idp", "an invalid URL"),
    ] {
        assert_eq!(document(url).source.to_string(), expected, "{url}");
    }
}

#[test]
fn equal_requests_share_a_cell_while_it_is_held() {
    let cells = FetchedCells::default();
    let first = cells.get(&document("http://a.test"));
    first.store(Arc::new(1_u8));
    assert!(Arc::ptr_eq(&first, &cells.get(&document("http://a.test"))));
    assert_eq!(cells.get(&document("http://b.test")).generation(), 0);
    drop(first);
    assert_eq!(cells.get(&document("http://a.test")).generation(), 0, "the ended cell is replaced");
}
