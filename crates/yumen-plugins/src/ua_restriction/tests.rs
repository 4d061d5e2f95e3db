use serde_json::{Value, json};

use crate::testing::PluginBench;

#[track_caller]
fn check(settings: Value, fields: &str, expected: (u16, &str)) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("ua-restriction", settings.clone());
    let reply = bench.run(&plugin, &format!("GET / HTTP/1.1\n{fields}"));
    assert_eq!((reply.status, reply.body.as_str()), expected, "{settings} {fields}");
}

const ADMITTED: (u16, &str) = (200, "ok\n");
const REFUSED: (u16, &str) = (403, "{\"message\":\"Not allowed\"}\n");

#[test]
fn agents_are_admitted_or_refused_by_pattern() {
    let allow = || json!({"allowlist": ["my-bot1", "(Baiduspider)/(\\d+)\\.(\\d+)"]});
    check(allow(), "User-Agent: my-bot1", ADMITTED);
    check(allow(), "User-Agent: x my-bot1 y", ADMITTED);
    check(allow(), "User-Agent: Baiduspider/3.0", ADMITTED);
    check(allow(), "User-Agent: foo/bar", REFUSED);
    check(allow(), "User-Agent: foo\nUser-Agent: my-bot1", ADMITTED);
    let deny = || json!({"denylist": ["my-bot2", "^curl/\\d"]});
    check(deny(), "User-Agent: my-bot2", REFUSED);
    check(deny(), "User-Agent:   curl/8.0  ", REFUSED);
    check(deny(), "User-Agent: CURL/8.0", ADMITTED);
    check(deny(), "User-Agent: foo\nUser-Agent: my-bot2", REFUSED);
}

#[test]
fn a_request_without_the_field_is_refused_unless_it_may_pass() {
    check(json!({"denylist": ["x"]}), "", REFUSED);
    check(json!({"allowlist": ["x"], "bypass_missing": true}), "", ADMITTED);
    check(json!({"allowlist": ["x"], "message": "No"}), "", (403, "{\"message\":\"No\"}\n"));
}

#[test]
fn broken_settings_are_refused() {
    for settings in [
        json!({}),
        json!({"allowlist": ["a"], "denylist": ["b"]}),
        json!({"allowlist": []}),
        json!({"denylist": [""]}),
        json!({"denylist": ["(a"]}),
    ] {
        assert!(PluginBench::new().build("ua-restriction", settings.clone()).is_err(), "{settings}");
    }
}
