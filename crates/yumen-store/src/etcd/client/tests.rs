//! Endpoints, key ranges and pauses.

use super::*;

#[test]
fn endpoints_are_urls_of_members() {
    for (url, expected) in [
        ("http://127.0.0.1:2379", Some(("127.0.0.1", 2379, false))),
        ("https://etcd.internal:1234/", Some(("etcd.internal", 1234, true))),
        ("http://[::1]:2380", Some(("::1", 2380, false))),
        ("http://etcd", Some(("etcd", 2379, false))),
        ("etcd:2379", None),
        ("ftp://etcd:2379", None),
        ("", None),
    ] {
        let found = EtcdEndpoint::parse(url);
        let found = found.as_ref().ok().map(|found| (&*found.host, found.port, found.is_secure));
        assert_eq!(found, expected, "{url}");
    }
}

#[test]
fn a_range_ends_after_the_last_key_of_a_prefix() {
    for (prefix, end) in [("/apisix/", "/apisix0"), ("a", "b"), ("", "\0")] {
        assert_eq!(range_end(prefix), end, "{prefix}");
    }
    assert_eq!(&after(&Bytes::from_static(b"a"))[..], b"a\0");
}

#[test]
fn pauses_grow_to_a_bound_and_are_never_all_the_same() {
    let (min, max) = (Duration::from_millis(50), Duration::from_millis(400));
    let mut backoff = RetryBackoff::new(RetryPauses { min, max });
    for due in [50, 100, 200, 400, 400, 400] {
        let (due, pause) = (Duration::from_millis(due), backoff.pause());
        assert!((due / 2..=due).contains(&pause), "{pause:?} of {due:?}");
    }
    let pauses: std::collections::BTreeSet<Duration> = (0..20).map(|_| backoff.pause()).collect();
    assert!(pauses.len() > 1);
}
