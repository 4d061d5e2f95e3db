//! Origins and the resulting response fields.

use serde_json::{Value, json};

use crate::testing::PluginBench;

fn check_with(bench: &PluginBench, settings: &Value, request: &str, expected: &[(&str, Option<&str>)]) {
    let reply = bench.run(&bench.plugin("cors", settings.clone()), request);
    for (name, value) in expected {
        assert_eq!(reply.field(name).as_deref(), *value, "{name} for {request:?} with {settings}");
    }
}

const ORIGIN: &str = "Access-Control-Allow-Origin";

#[test]
fn everybody_is_admitted_by_default() {
    let expected = [
        (ORIGIN, Some("*")),
        ("Access-Control-Allow-Methods", Some("*")),
        ("Access-Control-Allow-Headers", Some("*")),
        ("Access-Control-Max-Age", Some("5")),
        ("Access-Control-Expose-Headers", None),
        ("Access-Control-Allow-Credentials", None),
        ("Vary", None),
        ("Timing-Allow-Origin", None),
    ];
    check_with(&PluginBench::new(), &json!({}), "GET / HTTP/1.1\nOrigin: https://a.com", &expected);
    check_with(&PluginBench::new(), &json!({}), "GET / HTTP/1.1", &expected);
}

#[test]
fn a_preflight_is_answered_here() {
    let bench = PluginBench::new();
    let reply = bench.run(&bench.plugin("cors", json!({})), "OPTIONS / HTTP/1.1\nOrigin: https://a.com");
    assert_eq!((reply.status, reply.upstream, reply.body.as_str()), (200, None, ""));
    assert!(reply.fields.contains(&"Access-Control-Allow-Origin: *".to_owned()));
}

#[test]
fn options_without_preflight_fields_is_forwarded_where_only_preflights_are_answered() {
    let bare = "OPTIONS / HTTP/1.1";
    let with_origin = "OPTIONS / HTTP/1.1\nOrigin: https://a.com";
    let preflight = "OPTIONS / HTTP/1.1\nOrigin: https://a.com\nAccess-Control-Request-Method: PUT";
    for (answer, request, is_forwarded, allowed) in [
        ("options", bare, false, Some("*")),
        ("preflight", bare, true, Some("*")),
        ("preflight", with_origin, true, Some("*")),
        ("preflight", preflight, false, Some("*")),
        ("none", bare, true, Some("*")),
        ("none", with_origin, true, Some("*")),
        ("none", preflight, true, None),
    ] {
        let bench = PluginBench::new();
        let reply = bench.run(&bench.plugin("cors", json!({"answer": answer})), request);
        assert_eq!(reply.upstream.is_some(), is_forwarded, "{answer} {request:?}");
        assert_eq!(reply.field(ORIGIN).as_deref(), allowed, "{answer} {request:?}");
    }
}

#[test]
fn origins_are_allowed_by_rule() {
    let list = json!({"allow_origins": "http://a.com,http://b.com:80"});
    let one = json!({"allow_origins": "http://a.com"});
    let any = json!({"allow_origins": "**"});
    let regex = json!({"allow_origins_by_regex": [r".*\.test\.com$"]});
    let named = json!({"allow_origins_by_metadata": ["partners"]});
    for (settings, origin, expected, vary) in [
        (&list, "http://b.com:80", Some("http://b.com:80"), Some("Origin")),
        (&list, "http://c.com", None, Some("Origin")),
        (&one, "http://a.com", Some("http://a.com"), Some("Origin")),
        (&one, "http://b.com", None, Some("Origin")),
        (&any, "http://x.y", Some("http://x.y"), Some("Origin")),
        (&regex, "http://a.test.com", Some("http://a.test.com"), Some("Origin")),
        (&regex, "http://a.test.org", None, Some("Origin")),
        (&named, "http://a.test.org", None, Some("Origin")),
    ] {
        let request = format!("GET / HTTP/1.1\nOrigin: {origin}");
        check_with(&PluginBench::new(), settings, &request, &[(ORIGIN, expected), ("Vary", vary)]);
    }
    check_with(&PluginBench::new(), &any, "GET / HTTP/1.1", &[(ORIGIN, Some("*"))]);
    check_with(&PluginBench::new(), &one, "GET / HTTP/1.1", &[(ORIGIN, None)]);
}

#[test]
fn forced_wildcards_name_what_was_asked_for() {
    let settings = json!({"allow_origins": "**", "allow_methods": "**", "allow_headers": "**",
        "expose_headers": "x-a,x-b", "max_age": -1, "allow_credential": true});
    let request = "GET / HTTP/1.1\nOrigin: http://a.com\nAccess-Control-Request-Headers: req-h";
    let expected = [
        (ORIGIN, Some("http://a.com")),
        ("Access-Control-Allow-Methods", Some("GET,POST,PUT,DELETE,PATCH,HEAD,OPTIONS,CONNECT,TRACE")),
        ("Access-Control-Allow-Headers", Some("req-h")),
        ("Access-Control-Expose-Headers", Some("x-a,x-b")),
        ("Access-Control-Max-Age", Some("-1")),
        ("Access-Control-Allow-Credentials", Some("true")),
    ];
    check_with(&PluginBench::new(), &settings, request, &expected);
}

#[test]
fn named_lists_of_the_metadata_admit() {
    let mut bench = PluginBench::new();
    bench.metadata = Some(json!({"allow_origins": {"k1": "http://a.com,http://b.com", "k2": "*"}}));
    let with =
        |names: Value, origins: &str| json!({"allow_origins_by_metadata": names, "allow_origins": origins});
    for (settings, origin, expected) in [
        (with(json!(["k1"]), "*"), "http://a.com", Some("http://a.com")),
        (with(json!(["k1"]), "*"), "http://c.com", None),
        (with(json!(["k1"]), "http://c.com"), "http://c.com", Some("http://c.com")),
        (with(json!(["none", "k2"]), "*"), "http://z.com", Some("http://z.com")),
    ] {
        check_with(&bench, &settings, &format!("GET / HTTP/1.1\nOrigin: {origin}"), &[(ORIGIN, expected)]);
    }
}

#[test]
fn timings_have_rules_of_their_own() {
    for (settings, expected) in [
        (json!({"timing_allow_origins": "*"}), Some("*")),
        (json!({"timing_allow_origins": "http://a.com"}), Some("http://a.com")),
        (json!({"timing_allow_origins": "http://b.com"}), None),
        (json!({"timing_allow_origins_by_regex": ["a"]}), Some("http://a.com")),
    ] {
        let request = "GET / HTTP/1.1\nOrigin: http://a.com";
        check_with(&PluginBench::new(), &settings, request, &[("Timing-Allow-Origin", expected)]);
    }
}

#[test]
fn credentials_do_not_go_with_a_wildcard() {
    let settings = json!({"allow_credential": true, "allow_origins": "http://a.com", "allow_methods": "GET"});
    let error = PluginBench::new().build("cors", settings).err().expect("refused");
    assert_eq!(error.message, "you can not set '*' for other option when 'allow_credential' is true");
}
