//! Requests to an authorization service, and the effect of its responses.

use serde_json::{Value, json};

use crate::testing::guard::{CannedAnswer, JudgedRequest, judged};

const REQUEST: &str = "POST /a%20b?c=d&e\nHost: shop.example:8080\nCookie: s=1\nContent-Length: 3\nConnection: x\nX-User: forged\nx_user: forged\nX-Forwarded-Proto: https";

fn run(members: Value, answer: CannedAnswer) -> JudgedRequest {
    let mut auth = json!({ "upstream_id": "1" });
    auth.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    judged(json!({ "external_auth": auth }), REQUEST, answer)
}

fn status(status: u16, fields: &[&str]) -> CannedAnswer {
    CannedAnswer::Status(status, fields.iter().map(|line| (*line).to_owned()).collect())
}

#[test]
fn the_service_receives_the_fields_of_the_request_and_its_description() {
    let nginx = json!({ "url": "/auth?u=$escaped_request_uri", "host": "auth.example", "fields": [["X-A", "$host"], ["Cookie", ""]] });
    let asked = run(json!({ "nginx": nginx }), status(200, &[])).asked.unwrap();
    assert_eq!((asked.method.name(), &*asked.authority), ("GET", "auth.example"));
    assert_eq!(asked.target, "/auth?u=%2Fa%2520b%3Fc%3Dd%26e");
    assert!(asked.body.is_empty());
    let lines = crate::testing::lines(&asked.fields);
    let find = |name: &str| lines.iter().find(|line| line.starts_with(&format!("{name}:"))).cloned();
    for line in [
        "X-Original-URL: http://shop.example:8080/a%20b?c=d&e",
        "X-Original-Method: POST",
        "X-Sent-From: nginx-ingress-controller",
        "X-Real-IP: 192.0.2.7",
        "X-Forwarded-For: 192.0.2.7",
        "X-Auth-Request-Redirect: /a%20b?c=d&e",
        "X-A: shop.example",
    ] {
        assert!(lines.iter().any(|found| found == line), "{line} in {lines:?}");
    }
    for name in
        ["Content-Length", "Connection", "Cookie", "X-Forwarded-Proto", "X-Original-URI", "X-Scheme", "Host"]
    {
        assert_eq!(find(name), None);
    }
    let asked = run(json!({ "nginx": { "url": "/", "method": "HEAD" } }), status(200, &[])).asked.unwrap();
    assert_eq!((asked.method.name(), &*asked.authority), ("HEAD", "shop.example:8080"));
    let lines = crate::testing::lines(&asked.fields);
    assert!(lines.contains(&"X-Original-URI: /a%20b?c=d&e".to_owned()), "{lines:?}");
    assert!(lines.contains(&"X-Scheme: https".to_owned()), "{lines:?}");
}

#[test]
fn an_admission_passes_listed_fields_on() {
    let auth = json!({ "allowed_response_headers": ["X-User", "X-Role"], "nginx": { "url": "/" } });
    let judged = run(auth, status(204, &["X-User: ada", "X-Other: 1", "Set-Cookie: a=b"]));
    assert!(judged.refused.is_none());
    let of_user: Vec<&String> =
        judged.request.iter().filter(|line| line.to_ascii_lowercase().starts_with("x")).collect();
    assert_eq!(of_user, ["X-Forwarded-Proto: https", "X-User: ada"]);
    assert_eq!(judged.response, ["Set-Cookie: a=b"]);
}

#[test]
fn fields_are_composed_of_fields_of_the_service() {
    let composed = json!([
        ["Authorization", "Bearer $upstream_http_x_token"],
        ["X-Title", "${upstream_http_x_name}/${upstream_http_x_none}"],
        ["X-User", "$upstream_http_x_none"],
    ]);
    let auth = json!({ "nginx": { "url": "/", "answer_fields": composed } });
    let judged = run(auth, status(200, &["X-Token: t", "x-name: ada", "X_Name: lovelace"]));
    let fields = judged.request.iter().filter(|line| !line.starts_with("X-Forwarded"));
    let fields: Vec<&str> = fields.map(String::as_str).collect();
    assert!(fields.contains(&"Authorization: Bearer t"), "{fields:?}");
    assert!(fields.contains(&"X-Title: ada, lovelace/"), "{fields:?}");
    // A field without a value is not the client's to choose.
    assert!(!fields.iter().any(|line| line.contains("forged")), "{fields:?}");
}

#[test]
fn a_refusal_is_passed_on_and_anything_else_is_an_error() {
    let check = |answer: CannedAnswer, expected: u16, field: Option<&str>| {
        let (status, fields) = run(json!({ "nginx": { "url": "/" } }), answer).refused.unwrap();
        let challenge = fields.iter().find(|line| line.starts_with("WWW-Authenticate"));
        assert_eq!((status, challenge.map(String::as_str)), (expected, field));
    };
    check(status(401, &["WWW-Authenticate: Bearer"]), 401, Some("WWW-Authenticate: Bearer"));
    check(status(403, &["WWW-Authenticate: Bearer"]), 403, None);
    for other in [100, 302, 404, 500] {
        check(status(other, &[]), 500, None);
    }
    check(CannedAnswer::Fault, 500, None);
}

#[test]
fn a_refusal_leads_to_the_sign_in_page() {
    let check = |nginx: Value, expected: &str| {
        let mut written = json!({ "url": "/" });
        written.as_object_mut().unwrap().extend(nginx.as_object().unwrap().clone());
        let judged = run(json!({ "nginx": written }), status(401, &["Set-Cookie: a=b"]));
        let location = format!("Location: {expected}");
        assert_eq!(judged.refused, Some((302, vec![location])), "{nginx}");
        // The redirect carries the cookie with the state of the login.
        assert_eq!(judged.response, ["Set-Cookie: a=b"]);
    };
    let rd = "https://shop.example:8080%2Fa%2520b%3Fc%3Dd%26e";
    check(json!({ "signin": "https://auth.example/start" }), &format!("https://auth.example/start?rd={rd}"));
    check(json!({ "signin": "https://$host/s?a=b" }), &format!("https://shop.example/s?a=b&rd={rd}"));
    check(json!({ "signin": "https://a/s", "signin_parameter": "next" }), &format!("https://a/s?next={rd}"));
    check(
        json!({ "signin": "https://a/s?rd=$escaped_request_uri" }),
        "https://a/s?rd=%2Fa%2520b%3Fc%3Dd%26e",
    );
}

#[test]
fn cookies_of_the_service_are_added_to_errors_on_request_only() {
    let check = |always: bool, expected: &[&str]| {
        let nginx = json!({ "url": "/", "always_set_cookie": always });
        assert_eq!(run(json!({ "nginx": nginx }), status(403, &["Set-Cookie: a=b"])).response, expected);
    };
    check(false, &[]);
    check(true, &["Set-Cookie: a=b"]);
}

#[test]
fn a_decision_with_a_listed_status_is_used_again() {
    let cache = json!({ "key": "$cookie_s", "durations": [{ "statuses": [200, 401], "seconds": 60 }] });
    let chain = crate::testing::instances(
        json!({ "external_auth": { "upstream_id": "1", "nginx": { "url": "/", "cache": cache } } }),
    );
    let check = |cookie: &str, answer: CannedAnswer, is_asked: bool, expected: u16| {
        let request = format!("GET /\nHost: a\nCookie: s={cookie}");
        let judged = crate::testing::guard::judged_by(&chain, &request, answer);
        let refused = judged.refused.map_or(0, |(status, _)| status);
        assert_eq!((judged.asked.is_some(), refused), (is_asked, expected), "{cookie}");
    };
    check("1", status(200, &[]), true, 0);
    check("1", status(403, &[]), false, 0);
    check("2", status(403, &[]), true, 403);
    check("2", status(200, &["Set-Cookie: a=b"]), true, 0);
    // A response with a cookie is for one client.
    check("2", status(401, &[]), true, 401);
    check("2", status(200, &[]), false, 401);
}
