use serde_json::{Value, json};

use super::{SortOrder, TopFrame};

fn row(id: &str, requests: u64, errors: u64, busy_ns: u64, durations_us: Value) -> Value {
    json!({ "id": id, "name": "", "requests": requests, "errors": errors, "busy_ns": busy_ns,
            "duration_ns": requests * 10_000, "sent_bytes": requests * 100, "durations_us": durations_us })
}

fn look(uptime_ms: u64, routes: Value) -> Value {
    json!({
        "version": "1", "revision": 4, "workers": 2, "uptime_ms": uptime_ms, "routes": routes,
        "exact": { "requests": uptime_ms * 3, "errors": 0, "connections": 5 },
    })
}

/// Compares the ids of the routes in this order.
fn check_order(order: SortOrder, expected: &[&str]) {
    let now = look(
        1000,
        json!([
            row("busy", 10, 1, 900, json!([[10, 10]])),
            row("slow", 5, 0, 100, json!([[99, 5]])),
            row("broken", 20, 7, 50, json!([[5, 20]])),
        ]),
    );
    let frame = TopFrame::between(&Value::Null, &now, order);
    let ids: Vec<&str> = frame.sections[0].lines.iter().map(|line| &*line.id).collect();
    assert_eq!(ids, expected, "{order:?}");
}

#[test]
fn lines_are_sorted_by_what_was_asked_for() {
    check_order(SortOrder::Rate, &["broken", "busy", "slow"]);
    check_order(SortOrder::Latency, &["slow", "busy", "broken"]);
    check_order(SortOrder::Cpu, &["busy", "slow", "broken"]);
    check_order(SortOrder::Errors, &["broken", "busy", "slow"]);
}

#[test]
fn a_frame_tells_differences_per_second() {
    let before = look(1000, json!([row("a", 100, 1, 1_000_000, json!([[10, 100]]))]));
    let now = look(3000, json!([row("a", 300, 5, 201_000_000, json!([[10, 200], [64, 98], [128, 2]]))]));
    let frame = TopFrame::between(&before, &now, SortOrder::Rate);
    let line = &frame.sections[0].lines[0];
    assert_eq!((line.rate, line.error_rate, line.mean_us, line.p99_us), (100.0, 2.0, 10.0, 64.0));
    assert_eq!((line.cpu_percent, line.bytes_rate), (10.0, 10_000.0));
    assert_eq!((frame.total.rate, frame.connections, frame.revision, frame.seconds), (3000.0, 5, 4, 2.0));
}

#[test]
fn unused_rows_are_not_shown() {
    let same = json!([row("a", 100, 1, 1, json!([[10, 100]]))]);
    let frame = TopFrame::between(&look(1000, same.clone()), &look(2000, same), SortOrder::Rate);
    assert!(frame.sections[0].lines.is_empty());
}

#[test]
fn a_gateway_or_a_row_that_began_again_counts_from_nothing() {
    let old = look(9000, json!([row("a", 500, 0, 0, json!([[10, 500]]))]));
    for (uptime_ms, rate) in [(1000, 40.0), (11_000, 20.0)] {
        let now = look(uptime_ms, json!([row("a", 40, 0, 0, json!([[20, 40]]))]));
        let frame = TopFrame::between(&old, &now, SortOrder::Rate);
        let line = &frame.sections[0].lines[0];
        assert_eq!((line.rate, line.p99_us), (rate, 20.0), "{uptime_ms}");
    }
}

#[test]
fn an_answer_with_nothing_in_it_makes_an_empty_frame() {
    let frame = TopFrame::between(&Value::Null, &json!({}), SortOrder::Cpu);
    assert!(frame.sections.iter().all(|section| section.lines.is_empty()));
    assert_eq!(frame.json()["routes"], json!([]));
}
