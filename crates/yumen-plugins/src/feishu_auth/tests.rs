use serde_json::{Value, json};
use yumen_plugin::{SubrequestFault, SubrequestResponse};

use crate::testing::{InlineUpstreams, PluginBench, TestReply, service_response};

type ServiceAnswer = Result<SubrequestResponse, SubrequestFault>;

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(InlineUpstreams));
    bench
}

fn settings(more: &Value) -> Value {
    let mut settings = json!({
        "app_id": "app", "app_secret": "s3cret", "secret": "cookie-secret",
        "auth_redirect_uri": "https://shop.test/cb", "redirect_uri": "https://shop.test/login",
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn run(bench: &PluginBench, more: &Value, request: &str) -> TestReply {
    bench.run(&bench.plugin("feishu-auth", settings(more)), request)
}

fn document(status: u16, document: &Value) -> ServiceAnswer {
    service_response(status, &[], &document.to_string())
}

fn token() -> ServiceAnswer {
    document(200, &json!({ "code": 0, "access_token": "u-1", "expires_in": 7200 }))
}

fn user() -> ServiceAnswer {
    document(200, &json!({ "code": 0, "data": { "name": "Ann", "open_id": "ou-1" } }))
}

/// The user that the upstream sees.
fn user_of(reply: &TestReply) -> Value {
    use base64::Engine as _;
    let text = reply.upstream_field("X-Userinfo").expect("the upstream gets the user");
    let text = base64::engine::general_purpose::STANDARD.decode(text).expect("it is base64");
    serde_json::from_slice(&text).expect("it is JSON")
}

#[test]
fn code_becomes_a_session_with_the_user() {
    let bench = bench();
    let reply = run(&bench, &json!({}), "GET /a HTTP/1.1\nX-Userinfo: forged");
    let (cookie, state) = login_of(&reply);
    bench.host.answers.borrow_mut().extend([token(), user()]);
    let target = format!("/a?code=c1&state={state}");
    let request = format!("GET {target} HTTP/1.1\nX_Userinfo: forged\nCookie: {cookie}");
    let reply = run(&bench, &json!({}), &request);
    let ann = json!({ "name": "Ann", "open_id": "ou-1" });
    assert_eq!((reply.upstream_line(), user_of(&reply)), (&*format!("GET {target}"), ann.clone()));
    assert_eq!(reply.upstream_field("X_Userinfo"), None);
    let calls = bench.host.subrequests.take();
    assert_eq!((calls[0].target.as_str(), calls[0].may_repeat), ("/open-apis/authen/v2/oauth/token", false));
    let body: Value = serde_json::from_slice(&calls[0].body).unwrap();
    let expected = json!({
        "grant_type": "authorization_code", "client_id": "app", "client_secret": "s3cret", "code": "c1",
        "redirect_uri": "https://shop.test/cb",
    });
    assert_eq!(body, expected);
    assert_eq!(calls[1].fields.get("authorization"), Some(&b"Bearer u-1"[..]));
    let cookie = reply.field("Set-Cookie").expect("a session begins");
    assert!(cookie.contains("|feishu_login=; Path=/; Max-Age=0"), "{cookie}");
    let again = format!("GET /a HTTP/1.1\nCookie: {}\nX-Userinfo: forged", cookie.split(';').next().unwrap());
    let reply = run(&bench, &json!({}), &again);
    assert_eq!((user_of(&reply), reply.field("Set-Cookie")), (ann, None));
    // Secrets rotate, and the user may stay unknown to the upstream.
    let rotated = json!({ "secret": "new-secret", "secret_fallbacks": ["cookie-secret"] });
    assert_eq!(run(&bench, &rotated, &again).status, 200);
    assert_eq!(run(&bench, &json!({ "secret": "new-secret" }), &again).status, 302);
    let hidden = run(&bench, &json!({ "set_userinfo_header": false }), &again);
    assert_eq!(hidden.upstream_field("X-Userinfo"), None);
    assert!(bench.host.subrequests.take().is_empty());
    bench.host.advance(std::time::Duration::from_secs(86_400));
    assert_eq!(run(&bench, &json!({}), &again).status, 302);
}

/// Cookie and state of a login that a response begins.
fn login_of(reply: &TestReply) -> (String, String) {
    let location = reply.field("Location").unwrap_or_default();
    let state = location.strip_prefix("https://shop.test/login?state=");
    let cookie = reply.field("Set-Cookie").expect("a login begins");
    assert!(cookie.starts_with("feishu_login=") && cookie.contains("; HttpOnly; SameSite=Lax"), "{cookie}");
    let state = state.expect("the login page gets a state").to_owned();
    (cookie.split(';').next().unwrap().to_owned(), state)
}

#[test]
fn code_in_the_query_needs_a_login_of_the_same_browser() {
    let bench = bench();
    let (cookie, state) = login_of(&run(&bench, &json!({}), "GET /a HTTP/1.1"));
    let (_, other) = login_of(&run(&bench, &json!({}), "GET /a HTTP/1.1"));
    let status = |more: Value, query: &str, cookie: &str| {
        bench.host.answers.borrow_mut().clear();
        bench.host.answers.borrow_mut().extend([token(), user()]);
        run(&bench, &more, &format!("GET /a?{query} HTTP/1.1\nCookie: {cookie}")).status
    };
    let valid = format!("code=c&state={state}");
    for (query, cookie, expected) in [
        (valid.as_str(), cookie.as_str(), 200),
        (&valid, "", 401),
        (&valid, "feishu_login=x", 401),
        ("code=c", &cookie, 401),
        ("code=c&state=", &cookie, 401),
        (&format!("code=c&state={other}"), &cookie, 401),
        (&format!("{valid}&state={state}"), &cookie, 401),
        // Not a code: the login begins.
        ("code=", &cookie, 302),
    ] {
        assert_eq!(status(json!({}), query, cookie), expected, "{query} {cookie}");
    }
    assert_eq!(status(json!({ "verify_state": false }), "code=c", ""), 200);
    // Another tab gets the same state, so that both logins end.
    let second = run(&bench, &json!({}), &format!("GET /b HTTP/1.1\nCookie: {cookie}"));
    assert_eq!(login_of(&second).1, state);
    bench.host.advance(std::time::Duration::from_secs(600));
    assert_eq!(status(json!({}), &valid, &cookie), 401);
}

#[test]
fn field_with_the_code_takes_precedence() {
    let bench = bench();
    bench.host.answers.borrow_mut().extend([token(), user()]);
    let more = json!({ "code_header": "X-Code", "code_query": "q" });
    assert_eq!(run(&bench, &more, "GET /a?q=other HTTP/1.1\nX-Code: c1").status, 200);
    let body: Value = serde_json::from_slice(&bench.host.subrequests.take()[0].body).unwrap();
    assert_eq!(body["code"], "c1");
}

#[test]
fn only_a_user_of_the_provider_is_admitted() {
    fn check(answers: Vec<ServiceAnswer>, status: u16, message: &str) {
        let bench = bench();
        bench.host.answers.borrow_mut().extend(answers.clone());
        let reply = run(&bench, &json!({}), "GET /a HTTP/1.1\nX-Feishu-Code: c1");
        assert_eq!((reply.status, reply.field("Set-Cookie")), (status, None), "{answers:?}");
        assert_eq!(reply.body, format!("{{\"message\":\"{message}\"}}\n"));
    }
    let (invalid, away) = ("Invalid authorization code", "The login service is not available");
    check(vec![document(400, &json!({ "code": 20003, "error": "invalid_grant" }))], 401, invalid);
    check(vec![document(200, &json!({ "code": 20003, "access_token": "u-1" }))], 401, invalid);
    check(vec![token(), document(200, &json!({ "code": 99, "data": { "open_id": "a" } }))], 401, invalid);
    check(vec![token(), document(200, &json!({ "code": 0 }))], 401, invalid);
    check(vec![document(502, &json!({}))], 503, away);
    check(vec![service_response(200, &[], "<html>")], 503, away);
    check(vec![Err(SubrequestFault::Timeout)], 503, away);
    check(vec![token(), Err(SubrequestFault::Busy)], 503, away);
    // Digests hardly compress.
    let mix =
        |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let name: String = (1..700).map(|n| format!("{:016x}", mix(n))).collect();
    let long = document(200, &json!({ "code": 0, "data": { "name": name } }));
    check(vec![token(), long], 503, "The user information exceeds a cookie");
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (more, path) in [
        (json!({ "secret": "short" }), "secret"),
        (json!({ "access_token_url": "a" }), "access_token_url"),
        (json!({ "userinfo_url": "a" }), "userinfo_url"),
        (json!({ "code_query": "state" }), "code_query"),
    ] {
        let refused = PluginBench::new().build("feishu-auth", settings(&more)).err();
        assert_eq!(refused.map(|refused| refused.path).as_deref(), Some(path), "{more}");
    }
}
