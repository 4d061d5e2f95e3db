use serde_json::json;

use crate::testing::{PluginBench, TestReply};

/// A token signed by APISIX with the key `userkey`, created in 2053.
const TOKEN: &str = "eyJyYW5kb20iOjAuNDI5ODYzMTk3MTYxMzksInNpZ24iOiI0ODRlMDY4NTkxMWQ5NmJhMDc5YzQ1ZGI0OTE2NmZkYjQ0ODhjODVkNWQ0NmE1Y2FhM2UwMmFhZDliNjE5OTQ2IiwiZXhwaXJlcyI6MjY0MzExOTYyNH0=";

fn run(key: &str, request: &str) -> TestReply {
    let bench = PluginBench::new();
    bench.run(&bench.plugin("csrf", json!({"key": key})), request)
}

#[track_caller]
fn check(key: &str, request: &str, refusal: &str) {
    let reply = run(key, request);
    let expected = if refusal.is_empty() {
        (200, "ok\n".to_owned())
    } else {
        (401, format!("{{\"error_msg\":\"{refusal}\"}}\n"))
    };
    assert_eq!((reply.status, reply.body), expected, "{request}");
}

fn post(field: &str, cookie: &str) -> String {
    format!("POST / HTTP/1.1\nApisix-Csrf-Token: {field}\nCookie: a=b; apisix-csrf-token={cookie}")
}

#[test]
fn only_requests_that_change_something_need_a_token() {
    for method in ["GET", "HEAD", "OPTIONS"] {
        check("userkey", &format!("{method} / HTTP/1.1"), "");
    }
    check("userkey", "POST / HTTP/1.1", "no csrf token in headers");
    check("userkey", "DELETE / HTTP/1.1\nApisix-Csrf-Token:", "no csrf token in headers");
    check("userkey", "PUT / HTTP/1.1\nApisix-Csrf-Token: x", "no csrf cookie");
    check("userkey", &post("x", "y"), "csrf token mismatch");
}

#[test]
fn a_token_of_apisix_is_good_here() {
    check("userkey", &post(TOKEN, TOKEN), "");
    check("otherkey", &post(TOKEN, TOKEN), "Failed to verify the csrf token signature");
    for broken in ["x", "e30=", "bnVsbA==", "eyJyYW5kb20iOjEsInNpZ24iOiIiLCJleHBpcmVzIjoxfQ=="] {
        check("userkey", &post(broken, broken), "Failed to verify the csrf token signature");
    }
}

#[test]
fn every_answer_brings_a_token_that_is_good_until_it_expires() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("csrf", json!({"key": "k", "expires": 60}));
    let cookie = bench.run(&plugin, "GET / HTTP/1.1").field("Set-Cookie").expect("a cookie");
    let (token, rest) = cookie.split_once(';').expect("attributes");
    assert_eq!(rest, "path=/;SameSite=Lax;Expires=Tue, 14-Nov-23 22:14:20 GMT");
    let token = token.strip_prefix("apisix-csrf-token=").expect("its name");
    assert_eq!(bench.run(&plugin, &post(token, token)).status, 200);
    bench.host.advance(std::time::Duration::from_secs(60));
    assert_eq!(bench.run(&plugin, &post(token, token)).status, 200);
    bench.host.advance(std::time::Duration::from_secs(1));
    assert_eq!(bench.run(&plugin, &post(token, token)).status, 401);
}
