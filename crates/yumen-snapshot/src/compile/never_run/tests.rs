//! Plugins of routes to warnings about those that never run.

use yumen_config::document;

use crate::testing::compiler;

/// Checks the objects, paths and messages of the warnings about a document.
fn check(document: &str, expected: &[&str]) {
    let (resources, problems) = document::parse(document, &|_| None);
    assert_eq!(problems, [], "{document}");
    let problems = compiler().replace_all(resources, 1).problems;
    let lines: Vec<String> =
        problems.iter().map(|one| format!("{} at {}: {}", one.object, one.path, one.message)).collect();
    assert_eq!(lines, expected, "{document}");
}

fn check_route(plugins: &str, late: &[(&str, &str)]) {
    let line = |(first, late): &(&str, &str)| {
        format!("routes/r at plugins.{late}: {first} responds to every request, so {late} never runs")
    };
    let lines: Vec<String> = late.iter().map(line).collect();
    let document = format!("routes:\n- {{id: r, uri: /a, plugins: {{{plugins}}}}}\n");
    check(&document, &lines.iter().map(String::as_str).collect::<Vec<_>>());
}

#[test]
fn plugins_behind_a_responder_never_run() {
    let limit = "limit-count: {count: 1, time_window: 2}";
    // Authentication runs in an earlier phase, and cors also for responses.
    check_route(
        &format!("mocking: {{response_example: x}}, {limit}, key-auth: {{}}, cors: {{}}"),
        &[("mocking", "limit-count")],
    );
    check_route(
        "fault-injection: {abort: {http_status: 503}}, key-auth: {}, mocking: {response_example: x}",
        &[("fault-injection", "mocking"), ("fault-injection", "key-auth")],
    );
    check_route(&format!("redirect: {{uri: /b}}, {limit}"), &[("redirect", "limit-count")]);
    // The priority decides.
    check_route(&format!("mocking: {{response_example: x, _meta: {{priority: 1}}}}, {limit}"), &[]);
}

#[test]
fn plugins_behind_one_that_responds_sometimes_may_run() {
    let limit = "limit-count: {count: 1, time_window: 2}";
    for responder in [
        "mocking: {response_example: x, _meta: {filter: [[arg_a, '==', '1']]}}",
        "redirect: {http_to_https: true}",
        "fault-injection: {abort: {http_status: 503, percentage: 99}}",
        "fault-injection: {abort: {http_status: 503, vars: [[[arg_a, '==', '1']]]}}",
        "fault-injection: {delay: {duration: 1}}",
    ] {
        check_route(&format!("{responder}, {limit}"), &[]);
    }
}

#[test]
fn plugins_of_several_objects_are_reported_once() {
    let services = "services:\n- {id: s, plugins: {mocking: {response_example: x}, limit-count: {count: 1, time_window: 2}}}\n";
    let routes = "routes:\n- {id: r, uri: /a, service_id: s}\n- {id: q, uri: /b, service_id: s, plugins: {limit-req: {rate: 1, burst: 1, key: remote_addr}}}\n";
    let expected = [
        "routes/q at plugins.limit-req: mocking responds to every request, so limit-req never runs (mocking of services/s, limit-req of routes/q)",
        "services/s at plugins.limit-count: mocking responds to every request, so limit-count never runs",
    ];
    check(&format!("{services}{routes}"), &expected);
}
