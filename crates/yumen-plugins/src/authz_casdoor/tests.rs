use serde_json::{Value, json};
use yumen_plugin::{SubrequestFault, SubrequestResponse};

use crate::testing::{InlineUpstreams, PluginBench, TestReply, service_response};

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(InlineUpstreams));
    bench
}

fn settings(more: &Value) -> Value {
    let mut settings = json!({
        "endpoint_addr": "http://door.test:8000", "callback_url": "http://shop.test/in/callback",
        "client_id": "shop", "client_secret": "s3cret",
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn run(bench: &PluginBench, request: &str) -> TestReply {
    bench.run(&bench.plugin("authz-casdoor", settings(&json!({}))), request)
}

/// `NAME=value` of the cookie that a response sets.
fn cookie(reply: &TestReply, name: &str) -> String {
    let lines = reply.field("Set-Cookie").unwrap_or_default();
    let line =
        lines.split('|').find(|line| line.starts_with(&format!("{name}="))).expect("the cookie is set");
    line.split(';').next().unwrap().to_owned()
}

/// Begins a login; returns its cookie and its state.
fn begin(bench: &PluginBench, target: &str) -> (String, String) {
    let reply = run(bench, &format!("GET {target} HTTP/1.1"));
    assert_eq!(reply.status, 302);
    let location = reply.field("Location").unwrap();
    let (_, state) = location.split_once("&state=").expect("the URL has a state");
    (cookie(&reply, "casdoor_login"), state.split('&').next().unwrap().to_owned())
}

fn token(expires_in: u64) -> Result<SubrequestResponse, SubrequestFault> {
    service_response(200, &[], &json!({ "access_token": "t", "expires_in": expires_in }).to_string())
}

#[test]
fn user_logs_in_and_returns_to_the_first_request() {
    let bench = bench();
    let login = run(&bench, "GET /orders?a=b HTTP/1.1");
    let location = login.field("Location").unwrap();
    assert!(
        location.starts_with("http://door.test:8000/login/oauth/authorize?response_type=code&scope=read&")
    );
    assert!(location.ends_with("&client_id=shop&redirect_uri=http%3A%2F%2Fshop.test%2Fin%2Fcallback"));
    let (login, state) = begin(&bench, "/orders?a=b");
    bench.host.answers.borrow_mut().push_back(token(60));
    let reply = run(&bench, &format!("GET /in/callback?code=c&state={state} HTTP/1.1\nCookie: {login}"));
    assert_eq!((reply.status, reply.field("Location").as_deref()), (302, Some("/orders?a=b")));
    let calls = bench.host.subrequests.take();
    assert_eq!((calls[0].target.as_str(), calls[0].may_repeat), ("/api/login/oauth/access_token", false));
    let form = "code=c&grant_type=authorization_code&client_id=shop&client_secret=s3cret";
    assert_eq!(calls[0].body, form.as_bytes());
    let session = cookie(&reply, "casdoor_session");
    let status = |session: &str| run(&bench, &format!("GET /orders HTTP/1.1\nCookie: {session}")).status;
    assert_eq!(status(&session), 200);
    // A cookie of one use is none of another.
    let renamed = login.replace("casdoor_login", "casdoor_session");
    for forged in [&renamed, "casdoor_session=x", &session[..session.len() - 1]] {
        assert_eq!(status(forged), 302, "{forged}");
    }
    bench.host.advance(std::time::Duration::from_secs(60));
    assert_eq!(status(&session), 302);
}

#[test]
fn session_of_another_application_is_none() {
    let bench = bench();
    let (login, state) = begin(&bench, "/a");
    bench.host.answers.borrow_mut().push_back(token(60));
    let reply = run(&bench, &format!("GET /in/callback?code=c&state={state} HTTP/1.1\nCookie: {login}"));
    let request = format!("GET /a HTTP/1.1\nCookie: {}", cookie(&reply, "casdoor_session"));
    for more in [
        json!({ "client_id": "other" }),
        json!({ "endpoint_addr": "http://other.test" }),
        json!({ "client_secret": "x" }),
    ] {
        let plugin = bench.plugin("authz-casdoor", settings(&more));
        assert_eq!(bench.run(&plugin, &request).status, 302, "{more}");
    }
}

#[test]
fn callback_needs_the_state_of_the_same_browser() {
    let bench = bench();
    let (login, state) = begin(&bench, "/a");
    let check = |query: &str, cookie: &str, status: u16, body: &str| {
        let reply = run(&bench, &format!("GET /in/callback{query} HTTP/1.1\nCookie: {cookie}"));
        assert_eq!((reply.status, reply.body.as_str()), (status, body), "{query} {cookie}");
    };
    let missing = "failed when accessing token. Invalid code or state";
    check(&format!("?code=c&state={state}"), "", 503, "");
    check(&format!("?code=c&state={state}"), "casdoor_login=x", 503, "");
    check("", &login, 400, missing);
    check("?code=c", &login, 400, missing);
    check(&format!("?state={state}"), &login, 400, missing);
    check("?code=c&state=0", &login, 400, "invalid state");
    check(&format!("?code=c&state={state}&state={state}"), &login, 400, missing);
    assert!(bench.host.subrequests.take().is_empty());
    bench.host.advance(std::time::Duration::from_secs(600));
    check(&format!("?code=c&state={state}"), &login, 503, "");
}

#[test]
fn only_a_valid_token_begins_a_session() {
    let bench = bench();
    let (login, state) = begin(&bench, "/a");
    for answer in [
        token(0),
        service_response(200, &[], r#"{"access_token":"t"}"#),
        service_response(200, &[], r#"{"expires_in":60}"#),
        service_response(401, &[], r#"{"access_token":"t","expires_in":60}"#),
        service_response(200, &[], "error"),
        Err(SubrequestFault::Timeout),
    ] {
        bench.host.answers.borrow_mut().push_back(answer.clone());
        let reply = run(&bench, &format!("GET /in/callback?code=c&state={state} HTTP/1.1\nCookie: {login}"));
        assert_eq!((reply.status, reply.field("Set-Cookie")), (503, None), "{answer:?}");
    }
}

#[test]
fn login_continues_on_the_same_host_only() {
    for (target, expected) in [("//evil.test/a", "/evil.test/a"), ("/a?u=//b", "/a?u=//b")] {
        let bench = bench();
        let (login, state) = begin(&bench, target);
        bench.host.answers.borrow_mut().push_back(token(60));
        let reply = run(&bench, &format!("GET /in/callback?code=c&state={state} HTTP/1.1\nCookie: {login}"));
        assert_eq!(reply.field("Location").as_deref(), Some(expected), "{target}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (more, path) in [
        (json!({ "endpoint_addr": "door.test" }), "endpoint_addr"),
        (json!({ "endpoint_addr": "http://door.test/" }), "endpoint_addr"),
        (json!({ "callback_url": "http://shop.test" }), "callback_url"),
        (json!({ "callback_url": "/cb" }), "callback_url"),
    ] {
        let refused = PluginBench::new().build("authz-casdoor", settings(&more)).err();
        assert_eq!(refused.map(|refused| refused.path).as_deref(), Some(path), "{more}");
    }
}
