use serde_json::{Value, json};
use yumen_plugin::{DryRunResult, PhaseSet, Step};

use super::upstream;
use crate::testing::PluginBench;

#[test]
fn a_url_is_an_upstream() {
    let check = |host: &str, expected: Option<(&str, u16, &str)>| {
        let found = upstream(host).ok().map(|one| {
            let node = &one.nodes.as_ref().expect("it has a node").0[0];
            (node.host.clone(), node.port, format!("{:?}", one.scheme))
        });
        let expected = expected.map(|(host, port, scheme)| (host.to_owned(), port, scheme.to_owned()));
        assert_eq!(found, expected, "{host}");
    };
    check("http://a.test", Some(("a.test", 80, "Http")));
    check("https://a.test:8443", Some(("a.test", 8443, "Https")));
    check("grpcs://10.0.0.1", Some(("10.0.0.1", 443, "Grpcs")));
    check("http://[::1]:81", Some(("[::1]", 81, "Http")));
    check("http://[::1]", Some(("[::1]", 80, "Http")));
    check("http://a.test:99999", None);
    check("http://a.test:0", None);
}

#[test]
fn settings_are_those_of_apisix() {
    let bench = PluginBench::new();
    let refused = |settings: Value| bench.build("proxy-mirror", settings).is_err();
    assert!(!refused(json!({ "host": "http://a.test:80", "path": "/m", "path_concat_mode": "prefix" })));
    assert!(refused(json!({})));
    assert!(!refused(json!({ "host": "http://my_service:80" })));
    assert!(refused(json!({ "host": "a.test" })));
    assert!(refused(json!({ "host": "http://a.test/path" })));
    assert!(refused(json!({ "host": "http://a.test", "path": "m" })));
    assert!(refused(json!({ "host": "http://a.test", "path": "/m?a=b" })));
    assert!(refused(json!({ "host": "http://a.test", "sample_ratio": 0 })));
    assert!(refused(json!({ "host": "http://a.test", "path_concat_mode": "other" })));
}

/// Checks whether a request is copied, and whether its body is buffered for that.
fn check(settings: Value, request: &str, is_copied: bool, needs_body: bool) {
    let bench = PluginBench::new();
    let plugin = bench.plugin("proxy-mirror", settings.clone());
    let mut ex = bench.exchange(request);
    let is_requested = matches!(plugin.rewrite(&mut ex), Step::NeedBody { .. });
    assert_eq!(
        (!ex.upstream.mirrors.is_empty(), is_requested),
        (is_copied, needs_body),
        "{settings} {request}"
    );
    // The second call, with the body, changes nothing.
    assert!(ex.upstream.mirrors.is_empty() || matches!(plugin.rewrite(&mut ex), Step::Continue));
}

#[test]
fn only_bodies_within_the_bound_are_asked_for() {
    let to = |more: Value| {
        let mut settings = json!({ "host": "http://a.test" });
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    };
    check(to(json!({})), "GET /a HTTP/1.1", true, false);
    check(to(json!({})), "POST /a HTTP/1.1\n\nabc", true, true);
    check(to(json!({ "max_req_body_size": 2 })), "POST /a HTTP/1.1\n\nabc", true, false);
    check(to(json!({})), "POST /a HTTP/1.1\nTransfer-Encoding: chunked", true, false);
}

#[test]
fn a_share_of_the_requests_is_drawn() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("proxy-mirror", json!({ "host": "http://a.test", "sample_ratio": 0.25 }));
    let draw = |_: &usize| {
        let mut ex = bench.exchange("GET /a HTTP/1.1");
        assert!(matches!(plugin.rewrite(&mut ex), Step::Continue));
        !ex.upstream.mirrors.is_empty()
    };
    let drawn = (0..1000).filter(draw).count();
    assert!((200..300).contains(&drawn), "{drawn} of 1000");
    let mut ex = bench.exchange("GET /a HTTP/1.1");
    let DryRunResult::Note(note) = plugin.dry_run(PhaseSet::REWRITE, &mut ex) else {
        panic!("nothing is said")
    };
    assert_eq!(note, "copies 25 % of such requests to http://a.test");
}
