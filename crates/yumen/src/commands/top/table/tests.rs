use serde_json::{Value, json};

use super::super::frame::{SortOrder, TopFrame};
use super::{count, duration, fit, render};

fn frame(routes: usize) -> TopFrame {
    let row = |id: usize| {
        json!({ "id": format!("route-{id}"), "name": "", "requests": 100 - id, "busy_ns": 5_000_000,
                "duration_ns": 1_000_000, "durations_us": [[12, 100 - id]] })
    };
    let routes: Vec<Value> = (0..routes).map(row).collect();
    let plugins = json!([{ "id": "cors", "name": "", "requests": 3, "durations_us": [[2, 3]] }]);
    let now = json!({
        "version": "0.1.0", "revision": 7, "workers": 2, "uptime_ms": 1000, "routes": routes, "plugins": plugins,
        "exact": { "requests": 500, "errors": 2, "connections": 9 },
    });
    TopFrame::between(&Value::Null, &now, SortOrder::Rate)
}

#[test]
fn a_frame_becomes_a_header_and_a_table_for_each_kind_in_use() {
    let text = render(&frame(2), usize::MAX);
    let words: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(words[0], ["yumen", "0.1.0", "revision", "7", "workers", "2", "connections", "9"]);
    assert_eq!(words[1][..4], ["500", "req/s", "2.0", "errors/s"]);
    assert_eq!(words[3][..3], ["ROUTES", "req/s*", "errors/s"]);
    assert_eq!(words[4], ["route-0", "100", "0", "0", "10us", "12us", "0.5%", "0"]);
    assert_eq!((words[7][0], words[8][0]), ("PLUGINS", "cors"));
    assert!(!text.contains("CONSUMERS"), "{text}");
}

#[test]
fn a_low_screen_gets_the_first_rows_of_each_kind() {
    for height in [12, 20, 40] {
        let text = render(&frame(100), height);
        assert!(text.lines().count() <= height, "{height}:\n{text}");
        assert!(text.contains("route-0") && text.contains("cors"), "{height}:\n{text}");
    }
}

#[test]
fn sinks_that_fail_come_first_with_their_error() {
    let sink = |name: &str, sent: u64, dropped: u64, error: Value| {
        json!({ "plugin": name, "sink": "http://a", "sent": sent, "dropped": dropped, "waiting": 3,
                "waiting_bytes": 300, "error": error })
    };
    let look = |uptime_ms: u64, sinks: Vec<Value>| json!({ "uptime_ms": uptime_ms, "sinks": sinks });
    let before = look(1000, vec![sink("http-logger", 50, 0, Value::Null)]);
    let now = look(
        2000,
        vec![
            sink("http-logger", 250, 0, Value::Null),
            sink("tcp-logger", 0, 40, json!("refused\u{1b}[2J")),
            sink("loki-logger", 9, 7, Value::Null),
        ],
    );
    let frame = TopFrame::between(&before, &now, SortOrder::Rate);
    let text = render(&frame, usize::MAX);
    let words: Vec<Vec<&str>> = text
        .lines()
        .skip_while(|line| !line.starts_with("SINKS"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(words[0], ["SINKS", "sent/s", "dropped/s", "dropped", "waiting", "last", "error"]);
    assert_eq!(words[1], ["tcp-logger", "http://a", "0", "40.0", "40", "3", "refused?[2J"]);
    assert_eq!(words[2], ["loki-logger", "http://a", "9.0", "7.0", "7", "3", "-"]);
    assert_eq!(words[3], ["http-logger", "http://a", "200", "0", "0", "3", "-"]);
    assert_eq!(frame.json()["sinks"][0]["dropped"], 40);
    assert!(render(&frame, 9).lines().count() <= 9);
}

#[test]
fn a_gateway_without_traffic_has_a_message() {
    let frame = TopFrame::between(&Value::Null, &json!({ "version": "1" }), SortOrder::Rate);
    assert!(render(&frame, 10).ends_with("no requests\n"));
}

#[test]
fn numbers_are_short() {
    for (number, expected) in
        [(0.0, "0"), (0.5, "0.5"), (123.4, "123"), (9_999.0, "9999"), (25_300.0, "25.3k")]
    {
        assert_eq!(count(number), expected);
    }
    for (us, expected) in [(0.0, "0us"), (1.5, "1.5us"), (640.0, "640us"), (1_500.0, "1.5ms"), (2e6, "2.0s")]
    {
        assert_eq!(duration(us), expected);
    }
}

#[test]
fn a_label_fits_its_column_and_commands_no_terminal() {
    assert_eq!(fit("a\u{1b}[2Jb"), "a?[2Jb");
    let long = fit(&"門".repeat(100));
    assert_eq!((long.chars().count(), long.ends_with('…')), (34, true));
}

#[test]
fn requests_without_a_route_are_not_called_none() {
    let text = |requests: u64, sampled: u64| {
        let now = json!({
            "uptime_ms": 1000, "exact": { "requests": requests }, "total": { "requests": sampled },
        });
        render(&TopFrame::between(&Value::Null, &now, SortOrder::Rate), 40).lines().last().unwrap().to_owned()
    };
    assert_eq!(text(0, 0), "no requests");
    assert_eq!(text(70, 64), "no request had a route");
    assert_eq!(text(3, 0), "none of the requests was sampled");
}
