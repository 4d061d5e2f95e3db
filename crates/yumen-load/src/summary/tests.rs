use serde_json::{Value, json};

use super::*;
use crate::plan::{LoadLimits, RequestPlan};

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn groups_of_fields_are_flat_in_json() {
    let value = serde_json::to_value(LoadSummary::default()).unwrap();
    let expected = "format plan started_unix_ms elapsed_ns protocol tls connections requests responses unanswered \
                    bytes_sent bytes_received statuses errors latency latency_corrected connect_latency schedule_lag \
                    timeline ramp idle generator machine versions";
    assert_eq!(keys(&value), expected.split(' ').collect::<Vec<_>>());
    let expected = "urls method headers body_bytes kind connections threads duration_ms count warmup_ms protocol \
                    streams new_connection tls connect_timeout_ms response_timeout_ms good_statuses sources";
    assert_eq!(keys(&value["plan"]), expected.split(' ').collect::<Vec<_>>());
    assert_eq!(value["plan"]["good_statuses"], json!([200, 399]));
}

#[test]
fn json_round_trip_keeps_all_groups() {
    let plan = LoadPlan {
        request: RequestPlan { method: "POST".to_owned(), body_bytes: 7, ..RequestPlan::get("http://h/") },
        limits: LoadLimits { warmup_ms: 5, ..LoadLimits::duration_ms(1000) },
        ..LoadPlan::default()
    };
    let summary = LoadSummary {
        plan,
        totals: RequestTotals { requests: u64::MAX, responses: 2, unanswered: 3 },
        transfer: TransferTotals { bytes_sent: 4, bytes_received: 5 },
        statuses: BTreeMap::from([(200, 1), (503, 1)]),
        latencies: LoadLatencies {
            response: LatencySummary { count: 2, mean_ns: 1.5, ..LatencySummary::default() },
            corrected: Some(LatencySummary::default()),
            ..LoadLatencies::default()
        },
        ..LoadSummary::default()
    };
    let text = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<LoadSummary>(&text).unwrap(), summary);
}

#[test]
fn absent_fields_of_a_plan_have_their_defaults() {
    let plan: LoadPlan = serde_json::from_value(json!({ "connections": 3, "count": 9 })).unwrap();
    let expected = LoadPlan { connections: 3, limits: LoadLimits::count(9), ..LoadPlan::default() };
    assert_eq!(plan, expected);
}
