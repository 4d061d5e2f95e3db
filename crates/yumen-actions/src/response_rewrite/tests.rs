//! Fields of responses of endpoints after rewrites.

use serde_json::{Value, json};
use yumen_plugin::{ResponseHead, ResponseHeadPhase};

use crate::testing::{instances, with_exchange};

/// Checks a field of a response of an endpoint after these actions.
fn check(port: u16, actions: Value, field: (&str, &str), expected: &str) {
    let chain = instances(actions.clone());
    with_exchange(port, "GET /a\nHost: shop.example", |ex| {
        ex.endpoint.status = 200;
        let mut head = ResponseHead::default();
        if !field.1.is_empty() {
            head.fields.add(field.0, field.1.as_bytes());
        }
        for instance in &chain {
            instance.plugin.response_head(&mut ResponseHeadPhase::new(ex), &mut head);
        }
        let found = String::from_utf8_lossy(head.fields.get(field.0).unwrap_or_default()).into_owned();
        assert_eq!(found, expected, "{actions} {field:?}");
    });
}

#[test]
fn domains_and_paths_of_cookies_are_rewritten() {
    let rewrite = json!({ "response_rewrite": {
        "cookie_domains": [{ "from": "internal.example", "to": "$host" }],
        "cookie_paths": [{ "from": "/app/", "to": "/" }, { "from": "^/x(.*)", "regex": true, "to": "/y$1" }],
    } });
    for (cookie, expected) in [
        ("a=b; Domain=.Internal.example; Path=/app/x; Secure", "a=b; Domain=shop.example; Path=/x; Secure"),
        ("a=b;path=/x1;domain=other", "a=b;path=/y1;domain=other"),
        ("domain=internal.example", "domain=internal.example"),
        ("a=b; Path=/appx", "a=b; Path=/appx"),
    ] {
        check(80, rewrite.clone(), ("Set-Cookie", cookie), expected);
    }
}

#[test]
fn locations_are_rewritten_from_their_beginning() {
    let rewrite = json!({ "response_rewrite": { "locations": [
        { "from": "http://internal:8080/", "to": "https://$host/" },
        { "from": "^HTTP://([a-z]+)\\.local", "regex": true, "ignore_case": true, "to": "https://$1.example" },
    ] } });
    for (name, value, expected) in [
        ("Location", "http://internal:8080/a?b", "https://shop.example/a?b"),
        ("Location", "http://shop.local/x", "https://shop.example/x"),
        ("Location", "/x", "/x"),
        ("Refresh", "5; url=http://internal:8080/", "5; url=https://shop.example/"),
        ("Refresh", "5", "5"),
    ] {
        check(80, rewrite.clone(), (name, value), expected);
    }
}

#[test]
fn the_rule_for_tls_is_sent_over_tls_only() {
    let hsts = json!({ "hsts": { "include_subdomains": true, "preload": true } });
    let rule = "max-age=31536000; includeSubDomains; preload";
    check(443, hsts.clone(), ("Strict-Transport-Security", ""), rule);
    check(443, hsts.clone(), ("Strict-Transport-Security", "max-age=1"), rule);
    check(80, hsts, ("Strict-Transport-Security", ""), "");
}

#[test]
fn a_pattern_that_does_not_compile_is_refused_by_its_path() {
    let actions = json!({ "response_rewrite": { "locations": [{ "from": "(", "regex": true, "to": "" }] } });
    let spec = crate::testing::spec(actions);
    let error = crate::build(&spec, &"routes/1".into(), &crate::testing::FewUpstreams).unwrap_err();
    assert_eq!(error.path, "response_rewrite.locations[0].from");
}
