use yumen_snapshot::compile::FetchFailure;

use super::FetchStanding;
use crate::endpoints::inputs::KnownDocument;

fn failure(is_absent: bool) -> FetchFailure {
    FetchFailure { message: "connection refused".into(), is_absent }
}

#[test]
fn a_failure_is_told_at_once_without_a_value() {
    let mut standing = FetchStanding::default();
    standing.failed("connection refused", 0);
    assert_eq!(standing.told(failure(false), 300, 0), Some(failure(false)));
}

#[test]
fn a_failure_with_a_value_is_told_after_three_or_twice_the_interval() {
    let with_value = || {
        let mut standing = FetchStanding::default();
        standing.succeeded(KnownDocument { bytes: b"a".to_vec(), fetched_ms: 0 });
        standing
    };
    let mut standing = with_value();
    for is_told in [false, false, true] {
        standing.failed("connection refused", 1_000);
        assert_eq!(standing.told(failure(false), 300, 1_000).is_some(), is_told, "{}", standing.failures);
    }
    let mut standing = with_value();
    standing.failed("connection refused", 1_000);
    assert!(standing.told(failure(false), 300, 599_999).is_none());
    let told = standing.told(failure(false), 300, 600_000).unwrap();
    let expected = "connection refused; the value of Thu, 01 Jan 1970 00:00:00 GMT stays in use";
    assert_eq!(&*told.message, expected);
    assert!(standing.told(failure(true), 300, 1_000).is_some(), "an absent value is told at once");
}
