//! Two documents and a sample in, the plan out.

use std::net::SocketAddr;

use serde_json::{Value, json};
use yumen_base::{Now, ProblemLevel};
use yumen_config::{Resource, document};

use super::{ChangePlan, PlanContext, PlanLimits, plan};
use crate::Question;
use crate::testing::compiler;

const BEFORE: &str = r#"
routes:
- {id: a, uri: /a/*, upstream_id: u, desc: old}
- {id: b, uri: /b, upstream_id: u}
- {id: c, uri: /c, plugins: {limit-count: {count: 1, time_window: 60}}, upstream_id: u}
upstreams:
- {id: u, nodes: {"10.0.0.1:80": 1, "10.0.0.2:80": 1}}
- {id: spare, nodes: {"10.0.0.3:80": 1}}
"#;

fn resources(text: &str) -> Vec<Resource> {
    let (resources, problems) = document::parse(text, &|_| None);
    assert!(problems.is_empty(), "{problems:?}");
    resources
}

fn planned(before: &str, after: &str, sample: &[&str], limits: PlanLimits) -> ChangePlan {
    let ask = |line: &&str| {
        let (method, url) = line.split_once(' ').unwrap();
        Question { method: method.into(), url: url.into(), ..Question::default() }
    };
    let sample: Vec<Question> = sample.iter().map(ask).collect();
    let down: SocketAddr = "10.0.0.3:80".parse().unwrap();
    let workshop = PlanContext {
        compiler: &compiler,
        now: Now::default(),
        certificate: &|_| Err("none here".into()),
        is_healthy: &|address| (address == down).then_some(false),
        limits,
        simulates: true,
    };
    plan(&resources(before), &resources(after), &sample, &workshop)
}

fn as_json(plan: &ChangePlan) -> Value {
    serde_json::to_value(plan).unwrap()
}

#[test]
fn the_same_document_changes_nothing_however_it_is_written() {
    let same = BEFORE
        .replace("{id: b, uri: /b, upstream_id: u}", "{upstream_id: u, id: b, update_time: 7, uri: /b}");
    let plan = planned(BEFORE, &same, &["GET /a/1", "GET /b"], PlanLimits::default());
    assert_eq!((plan.changes.len(), plan.impact.changed, plan.impact.asked), (0, 0, 2));
    assert_eq!(plan.needs_confirmation, None);
    assert!(plan.problems.iter().all(|planned| !planned.is_new), "{:?}", plan.problems);
    assert!(!plan.introduces_errors());
}

const AFTER: &str = r#"
routes:
- {id: a, uri: /a/x, upstream_id: u}
- {id: c, uri: /c, plugins: {limit-count: {count: 2, time_window: 60}, key-auth: {}}, upstream_id: spare}
- {id: d, uri: /b, methods: [GET], upstream_id: u}
- {id: e, uri: /b, methods: [GET], upstream_id: u}
upstreams:
- {id: u, nodes: {"10.0.0.1:80": 1, "10.0.0.2:80": 2}}
- {id: spare, nodes: {"10.0.0.3:80": 1}}
"#;

#[test]
fn objects_are_told_in_the_order_of_compiling_with_the_places_that_differ() {
    let changes = as_json(&planned(BEFORE, AFTER, &[], PlanLimits::default()))["changes"].clone();
    assert_eq!(
        changes,
        json!([
            {"kind": "upstreams", "id": "u", "what": "changed", "paths": ["nodes.10.0.0.2:80"]},
            {"kind": "routes", "id": "a", "what": "changed", "paths": ["uri", "desc"]},
            {"kind": "routes", "id": "b", "what": "removed"},
            {"kind": "routes", "id": "c", "what": "changed",
             "paths": ["plugins.limit-count.count", "plugins.key-auth", "upstream_id"]},
            {"kind": "routes", "id": "d", "what": "added"},
            {"kind": "routes", "id": "e", "what": "added"},
        ])
    );
}

#[test]
fn problems_that_the_change_brings_are_marked() {
    let plan = planned(BEFORE, AFTER, &[], PlanLimits::default());
    let rows: Vec<(bool, String)> = plan
        .problems
        .iter()
        .map(|planned| (planned.is_new, format!("{}: {}", planned.problem.object, planned.problem.message)))
        .collect();
    let rows: Vec<(bool, &str)> = rows.iter().map(|(is_new, text)| (*is_new, text.as_str())).collect();
    assert!(rows.contains(&(
        true,
        "routes/e: no request gets to this route: routes/d has the same host, path and priority and a lower id"
    )), "{rows:?}");
    assert!(rows.contains(&(false, "upstreams/spare: no endpoint is healthy now")), "{rows:?}");
    assert!(plan.introduces_errors());
}

#[test]
fn errors_that_are_there_already_are_none_of_the_change() {
    let plan = planned(AFTER, &AFTER.replace("uri: /c,", "uri: /c2,"), &[], PlanLimits::default());
    assert!(plan.problems.iter().any(|planned| planned.problem.level == ProblemLevel::Error));
    assert!(!plan.introduces_errors(), "{:?}", plan.problems);
}

#[test]
fn an_id_is_the_same_as_number_and_as_text() {
    let route =
        |id: &str| format!("routes:\n- {{id: {id}, uri: /a, upstream: {{nodes: {{\"10.0.0.1:80\": 1}}}}}}\n");
    let plan = planned(&route("8"), &route("\"8\""), &[], PlanLimits::default());
    assert_eq!(plan.changes, []);
}

#[test]
fn the_sample_is_asked_before_and_after() {
    let sample = ["GET /a/1", "GET /a/x", "GET /b", "POST /b", "GET /c", "GET /nobody", "GET nonsense"];
    let plan =
        planned(BEFORE, AFTER, &sample, PlanLimits { changed_share_max: 1.0, ..PlanLimits::default() });
    let impact = &as_json(&plan)["impact"];
    for (field, count) in [
        ("asked", 6),
        ("changed", 4),
        ("lose_route", 2),
        ("change_route", 1),
        ("change_answer", 3),
        ("change_upstream", 0),
        ("refused", 1),
    ] {
        assert_eq!(impact[field], count, "{field} in {impact}");
    }
    let text = plan.to_string();
    for part in [
        "~ upstreams/u: nodes.10.0.0.2:80\n",
        "- routes/b\n",
        "\nNew problems\nwarning: routes/a",
        "\nerror: routes/e at uri: ",
        "\nAlready present before this change\nwarning: upstreams/spare",
        "4 of 6 sampled requests would change\n  2 would become 404\n",
        "  GET /a/1: route a, upstreams/u -> no route, 404\n",
        "  GET /c: route c, upstreams/u -> route c, 401 by key-auth\n",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert_eq!(plan.needs_confirmation, None);
}

#[test]
fn a_change_that_does_much_needs_somebodys_word() {
    let sample = ["GET /a/1", "GET /a/x", "GET /b", "GET /c"];
    let few = PlanLimits { changed_share_max: 0.5, deleted_routes_max: 2 };
    let reason = planned(BEFORE, "routes: []", &sample, few).needs_confirmation.unwrap();
    let expected = "3 routes would be removed; the limit without confirmation is 2; 4 of 4 sampled requests would change, more than 50 %";
    assert_eq!(reason, expected);
    let many = PlanLimits { changed_share_max: 1.0, deleted_routes_max: 3 };
    assert_eq!(planned(BEFORE, "routes: []", &sample, many).needs_confirmation, None);
}

#[test]
fn what_is_wrong_already_where_a_change_leads_to_is_told_in_full() {
    let spare_too = BEFORE.replace("routes:", "routes:\n- {id: s, uri: /s, upstream_id: spare}");
    let expected = "upstreams/spare at nodes: no endpoint is healthy now";
    let plan = |after: &str| planned(&spare_too, after, &[], PlanLimits::default()).to_string();
    let near =
        plan(&spare_too.replace("{id: b, uri: /b, upstream_id: u}", "{id: b, uri: /b, upstream_id: spare}"));
    assert!(near.contains("Already present before this change") && near.contains(expected), "{near}");
    let far = plan(&spare_too.replace("desc: old", "desc: new"));
    assert!(!far.contains(expected) && far.contains("1 problem exists already"), "{far}");
}
