use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use crate::testing::PluginBench;

/// Checks the time left in milliseconds (0 for none) for these request fields, and the field that an endpoint
/// gets 250 ms later.
#[track_caller]
fn check(settings: Value, fields: &str, left_ms: u64, expected: Option<&str>) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("deadline", settings);
    let mut ex = bench.exchange(&format!("GET / HTTP/1.1{fields}"));
    assert!(matches!(plugin.rewrite(&mut ex), Step::Continue));
    let found_ms = ex.upstream.deadline_ms.saturating_sub(ex.now.mono_ms());
    assert_eq!((found_ms, ex.upstream.deadline_ms == 0), (left_ms, left_ms == 0), "{fields:?}");
    bench.host.advance(Duration::from_millis(250));
    plugin.upstream_request(&mut UpstreamRequestPhase::new(&mut ex));
    let sent = ex.request.fields.get("x-left").map(|value| String::from_utf8_lossy(value).into_owned());
    assert_eq!(sent.as_deref(), expected, "{fields:?}");
}

fn settings(more: &Value) -> Value {
    let mut settings = json!({ "upstream_header": { "name": "X-Left", "format": "milliseconds" } });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

#[test]
fn earliest_deadline_counts() {
    let plain = settings(&json!({}));
    check(plain.clone(), "", 0, None);
    check(plain.clone(), "\nX-Request-Deadline: 1700000001000", 1000, Some("750"));
    check(plain.clone(), "\nX-Envoy-Expected-Rq-Timeout-Ms: 900", 900, Some("650"));
    check(plain.clone(), "\nGrpc-Timeout: 2S", 2000, Some("1750"));
    check(plain.clone(), "\nGrpc-Timeout: 2S\nX-Request-Deadline: 1700000001500", 1500, Some("1250"));
    // An expired deadline is passed on as 1 ms; the worker detects the expiry.
    check(plain.clone(), "\nGrpc-Timeout: 100m", 100, Some("1"));
    for unread in
        ["Grpc-Timeout: 5", "Grpc-Timeout: 123456789S", "Grpc-Timeout: xS", "X-Request-Deadline: soon"]
    {
        check(plain.clone(), &format!("\n{unread}"), 0, None);
    }
}

#[test]
fn a_node_may_have_a_say_in_it() {
    check(settings(&json!({"default_timeout": 3})), "", 3000, Some("2750"));
    check(settings(&json!({"default_timeout": 3})), "\nGrpc-Timeout: 9S", 9000, Some("8750"));
    check(settings(&json!({"max_timeout": 3})), "\nGrpc-Timeout: 9S", 3000, Some("2750"));
    check(settings(&json!({"max_timeout": 3})), "", 3000, Some("2750"));
    let own = json!({"request_headers": [{"name": "X-Wait", "format": "seconds"}]});
    check(settings(&own), "\nX-Wait: 1.5\nGrpc-Timeout: 1S", 1500, Some("1250"));
    check(settings(&json!({"tell_upstream": false, "default_timeout": 1})), "", 1000, None);
}

#[test]
fn a_year_and_more_is_for_ever() {
    for seconds in [31_536_000.0, 1e15, f64::MAX] {
        check(settings(&json!({"default_timeout": seconds})), "", 0, None);
        check(settings(&json!({"max_timeout": seconds})), "", 0, None);
        check(settings(&json!({"max_timeout": seconds})), "\nGrpc-Timeout: 9S", 9000, Some("8750"));
    }
    check(
        settings(&json!({"max_timeout": 3})),
        "\nX-Request-Deadline: 18446744073709551615",
        3000,
        Some("2750"),
    );
}

#[test]
fn every_format_is_written_as_it_is_read() {
    for format in [
        DeadlineFormat::Milliseconds,
        DeadlineFormat::Seconds,
        DeadlineFormat::UnixMilliseconds,
        DeadlineFormat::Grpc,
    ] {
        for left_ms in [1, 999, 1000, 61_500] {
            let written = format.write(left_ms, 1_700_000_000_000);
            assert_eq!(format.read(written.as_bytes(), 1_700_000_000_000), Some(left_ms), "{format:?}");
        }
    }
}
