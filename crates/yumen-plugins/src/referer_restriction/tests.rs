use serde_json::{Value, json};

use crate::testing::PluginBench;

#[track_caller]
fn check(settings: Value, fields: &str, expected: u16) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("referer-restriction", settings.clone());
    let reply = bench.run(&plugin, &format!("GET / HTTP/1.1\n{fields}"));
    assert_eq!(reply.status, expected, "{settings} {fields}");
    if expected == 403 {
        assert_eq!(reply.body, "{\"message\":\"Your referer host is not allowed\"}\n");
    }
}

#[test]
fn hosts_are_admitted_or_refused() {
    let white = || json!({"whitelist": ["*.xx.com", "yy.com", "[::1]"]});
    check(white(), "Referer: http://yy.com/am", 200);
    check(white(), "Referer: https://yy.com:8443?x", 200);
    check(white(), "Referer: //yy.com", 200);
    check(white(), "Referer: http://www.xx.com/", 200);
    check(white(), "Referer: http://[::1]:80/", 200);
    check(white(), "Referer: http://xx.com/", 403);
    check(white(), "Referer: http://www.yy.com/", 403);
    check(white(), "Referer: http://evil.com/yy.com", 403);
    let black = || json!({"blacklist": ["*.xx.com", "yy.com"]});
    check(black(), "Referer: http://yy.com/", 403);
    check(black(), "Referer: http://a.b.xx.com/", 403);
    check(black(), "Referer: http://zz.com/", 200);
}

#[test]
fn missing_or_invalid_bodies_are_refused_unless_optional() {
    for fields in ["", "Referer: www.yy.com", "Referer: http://", "Referer: ftp://yy.com/"] {
        check(json!({"whitelist": ["yy.com"]}), fields, 403);
        check(json!({"whitelist": ["yy.com"], "bypass_missing": true}), fields, 200);
    }
}

#[test]
fn broken_settings_are_refused() {
    for settings in [
        json!({}),
        json!({"whitelist": ["a"], "blacklist": ["b"]}),
        json!({"whitelist": ["a/b"]}),
        json!({"blacklist": []}),
    ] {
        assert!(PluginBench::new().build("referer-restriction", settings.clone()).is_err(), "{settings}");
    }
}
