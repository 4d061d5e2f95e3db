use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use yumen_plugin::{Plugin, SubrequestFault};

use super::messages::{logged_out_ticket, validated_user};
use crate::testing::{InlineUpstreams, PluginBench, TestReply, service_response};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(InlineUpstreams));
    bench.patterns.host = "*.test";
    bench
}

/// The state in the URL of the service that a redirect to the server names.
fn state_of(reply: &TestReply) -> String {
    let location = reply.field("Location").unwrap_or_default();
    location.split("%3Fstate%3D").nth(1).expect("the service has a state").to_owned()
}

fn settings(more: &Value) -> Value {
    let mut settings = json!({
        "idp_uri": "http://cas.test/cas", "cas_callback_uri": "/callback", "logout_uri": "/logout",
        "cookie": { "secret": SECRET, "secure": false },
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

fn plugin(bench: &PluginBench) -> Arc<dyn Plugin> {
    bench.plugin("cas-auth", settings(&json!({})))
}

fn success(user: &str) -> String {
    format!(
        "<cas:serviceResponse xmlns:cas='http://www.yale.edu/tp/cas'><cas:authenticationSuccess>\
         <cas:user>{user}</cas:user></cas:authenticationSuccess></cas:serviceResponse>"
    )
}

/// `NAME=value` of the cookie that a response sets.
fn cookie(reply: &TestReply, name: &str) -> String {
    let lines = reply.field("Set-Cookie").unwrap_or_default();
    let line =
        lines.split('|').find(|line| line.starts_with(&format!("{name}="))).expect("the cookie is set");
    line.split(';').next().unwrap().to_owned()
}

/// Logs in; returns the cookie of the session.
fn log_in(bench: &PluginBench, plugin: &Arc<dyn Plugin>, target: &str, ticket: &str) -> (TestReply, String) {
    let login = bench.run(plugin, &format!("GET {target} HTTP/1.1"));
    assert_eq!(login.status, 302);
    let (cookies, state) = (cookie(&login, "CAS_REQUEST_URI"), state_of(&login));
    bench.host.answers.borrow_mut().push_back(service_response(200, &[], &success("ann")));
    let callback = format!("/callback?state={state}&ticket={ticket}");
    let reply = bench.run(plugin, &format!("GET {callback} HTTP/1.1\nCookie: {cookies}"));
    let session = cookie(&reply, "CAS_SESSION");
    (reply, session)
}

#[test]
fn user_logs_in_and_returns_to_the_first_request() {
    let bench = bench();
    let plugin = plugin(&bench);
    let login = bench.run(&plugin, "GET /orders?a=b HTTP/1.1\nHost: shop.test");
    let service = format!("service=http%3A%2F%2Fshop.test%3A9080%2Fcallback%3Fstate%3D{}", state_of(&login));
    assert_eq!(login.field("Location"), Some(format!("http://cas.test/cas/login?{service}")));
    assert!(login.field("Set-Cookie").unwrap().ends_with("; Path=/; HttpOnly; SameSite=Lax"));
    let (reply, session) = log_in(&bench, &plugin, "/orders?a=b", "ST-1");
    assert_eq!((reply.status, reply.field("Location").as_deref()), (302, Some("/orders?a=b")));
    let calls = bench.host.subrequests.take();
    let service = "http%3A%2F%2Ftest.com%3A9080%2Fcallback%3Fstate%3D";
    let validation = format!("/cas/serviceValidate?ticket=ST-1&service={service}");
    assert!(calls[0].target.starts_with(&validation), "{}", calls[0].target);
    assert!(!calls[0].may_repeat);
    // The ticket itself is no session: it is in access logs.
    assert!(!session.contains("ST-1"));
    let request = format!("GET /orders HTTP/1.1\nCookie: x=y; {session}");
    assert_eq!(bench.run(&plugin, &request).upstream_line(), "GET /orders");
    for forged in ["CAS_SESSION=ST-1", "CAS_SESSION=", "CAS_SESSION=AAAA"] {
        let reply = bench.run(&plugin, &format!("GET /orders HTTP/1.1\nCookie: {forged}"));
        assert_eq!(reply.status, 302, "{forged}");
        assert_eq!(cookie(&reply, "CAS_SESSION"), "CAS_SESSION=deleted");
    }
    bench.host.advance(Duration::from_secs(3600));
    assert_eq!(bench.run(&plugin, &request).status, 302);
}

#[test]
fn ticket_needs_a_login_of_the_same_browser() {
    let bench = bench();
    let plugin = plugin(&bench);
    let login = bench.run(&plugin, "GET /a HTTP/1.1");
    let (own, state) = (cookie(&login, "CAS_REQUEST_URI"), state_of(&login));
    let other = state_of(&bench.run(&plugin, "GET /a HTTP/1.1"));
    assert_ne!(state, other);
    let mut tampered = own.clone();
    tampered.replace_range(16..17, if &own[16..17] == "A" { "B" } else { "A" });
    let check = |query: &str, cookies: &str| {
        let reply = bench.run(&plugin, &format!("GET /callback?{query} HTTP/1.1\nCookie: {cookies}"));
        let body = "{\"message\":\"invalid ticket\"}\n";
        assert_eq!((reply.status, reply.body.as_str()), (401, body), "{query} {cookies}");
    };
    let valid = format!("ticket=ST-1&state={state}");
    for cookies in ["", "CAS_REQUEST_URI=x", "CAS_REQUEST_URI=L2E.a.9999999999.AAAA", &tampered] {
        check(&valid, cookies);
    }
    // The link of another user has no state, or that of another login.
    check("ticket=ST-1", &own);
    check(&format!("ticket=ST-1&state={other}"), &own);
    check(&format!("{valid}&state={state}"), &own);
    bench.host.advance(Duration::from_secs(601));
    check(&valid, &own);
    assert!(bench.host.subrequests.take().is_empty());
}

#[test]
fn logins_of_several_tabs_end() {
    let bench = bench();
    let plugin = plugin(&bench);
    let first = bench.run(&plugin, "GET /a HTTP/1.1");
    let cookies = cookie(&first, "CAS_REQUEST_URI");
    let second = bench.run(&plugin, &format!("GET /b HTTP/1.1\nCookie: {cookies}"));
    assert_eq!(state_of(&first), state_of(&second));
}

#[test]
fn service_has_a_host_of_the_route_or_of_the_settings() {
    for (pattern, callback, status) in [
        ("shop.test", "/callback", 302),
        ("*.test", "/callback", 302),
        ("", "/callback", 503),
        ("*", "/callback", 503),
        ("", "https://shop.test/callback", 302),
    ] {
        let mut bench = bench();
        bench.patterns.host = pattern;
        let plugin = bench.plugin("cas-auth", settings(&json!({ "cas_callback_uri": callback })));
        let reply = bench.run(&plugin, "GET /a HTTP/1.1\nHost: shop.test");
        assert_eq!(reply.status, status, "{pattern} {callback}");
        // The end of a login is refused as well.
        bench.patterns.host = "shop.test";
        let login = bench.run(&plugin, "GET /a HTTP/1.1\nHost: shop.test");
        let (cookies, state) = (cookie(&login, "CAS_REQUEST_URI"), state_of(&login));
        bench.patterns.host = pattern;
        bench.host.answers.borrow_mut().push_back(service_response(200, &[], &success("ann")));
        let end =
            format!("GET /callback?ticket=ST-1&state={state} HTTP/1.1\nHost: evil.test\nCookie: {cookies}");
        assert_eq!(bench.run(&plugin, &end).status, status, "{pattern} {callback}");
    }
}

#[test]
fn login_continues_on_the_same_host_only() {
    for (target, expected) in [("//evil.test/a", "/evil.test/a"), ("/a?u=//b", "/a?u=//b")] {
        let bench = bench();
        let plugin = plugin(&bench);
        let (reply, _) = log_in(&bench, &plugin, target, "ST-1");
        assert_eq!(reply.field("Location").as_deref(), Some(expected), "{target}");
    }
}

#[test]
fn only_a_whole_success_begins_a_session() {
    let bench = bench();
    let plugin = plugin(&bench);
    let login = bench.run(&plugin, "GET /a HTTP/1.1");
    let callback = format!(
        "GET /callback?ticket=ST-1&state={} HTTP/1.1\nCookie: {}",
        state_of(&login),
        cookie(&login, "CAS_REQUEST_URI")
    );
    let failure = "<cas:serviceResponse xmlns:cas='http://www.yale.edu/tp/cas'>\
                   <cas:authenticationFailure code='INVALID_TICKET'/></cas:serviceResponse>";
    for answer in [
        service_response(200, &[], failure),
        service_response(500, &[], &success("ann")),
        service_response(200, &[], ""),
        Err(SubrequestFault::Timeout),
        Err(SubrequestFault::Busy),
    ] {
        bench.host.answers.borrow_mut().push_back(answer.clone());
        let reply = bench.run(&plugin, &callback);
        assert_eq!((reply.status, reply.field("Set-Cookie")), (401, None), "{answer:?}");
    }
}

#[test]
fn user_and_server_end_a_session() {
    let bench = bench();
    let plugin = plugin(&bench);
    let (_, first) = log_in(&bench, &plugin, "/a", "ST-1");
    let (_, second) = log_in(&bench, &plugin, "/a", "ST-2");
    let status = |session: &str| bench.run(&plugin, &format!("GET /a HTTP/1.1\nCookie: {session}")).status;
    assert_eq!((status(&first), status(&second)), (200, 200));
    let reply = bench.run(&plugin, &format!("GET /logout HTTP/1.1\nCookie: {first}"));
    assert_eq!((reply.status, reply.field("Location").as_deref()), (302, Some("http://cas.test/cas/logout")));
    assert_eq!(cookie(&reply, "CAS_SESSION"), "CAS_SESSION=deleted");
    assert_eq!((status(&first), status(&second)), (302, 200));
    assert_eq!(bench.run(&plugin, "GET /logout HTTP/1.1").status, 401);
    let post = |body: &str| bench.run(&plugin, &format!("POST /callback HTTP/1.1\n\n{body}"));
    let refused = post("<a/>");
    assert_eq!((refused.status, refused.upstream.is_none()), (400, true));
    assert_eq!(refused.body, "{\"message\":\"invalid logout request from IdP, no ticket\"}\n");
    assert_eq!(post(&logout_request("ST-9")).status, 200);
    assert_eq!(status(&second), 200);
    assert_eq!(post(&logout_request("ST-2")).status, 200);
    assert_eq!(status(&second), 302);
}

fn logout_request(ticket: &str) -> String {
    format!(
        "<samlp:LogoutRequest xmlns:samlp='urn:oasis:names:tc:SAML:2.0:protocol'>\
         <samlp:SessionIndex>{ticket}</samlp:SessionIndex></samlp:LogoutRequest>"
    )
}

#[test]
fn messages_are_read_as_xml() {
    fn check(body: &str, expected: Option<&str>) {
        assert_eq!(validated_user(body.as_bytes()).as_deref(), expected, "{body}");
    }
    check(&success("ann"), Some("ann"));
    check(&success(" a&amp;b "), Some("a&b"));
    check(&success("admin<!-- -->@evil.test"), Some("admin@evil.test"));
    check(&success(""), None);
    // A name in a comment, in an attribute or in a failure is no success.
    check(&format!("<a><!--{}--></a>", success("ann")), None);
    check(&format!("<cas:other xmlns:cas='x'>{}</cas:other>", success("ann")), None);
    check("<!DOCTYPE a [<!ENTITY x 'y'>]><serviceResponse/>", None);
    check("<serviceResponse><authenticationSuccess><user>a</user>", None);
    let encoded =
        "logoutRequest=%3CLogoutRequest%3E%3CSessionIndex%3EST-1%3C%2FSessionIndex%3E%3C%2FLogoutRequest%3E";
    assert_eq!(logged_out_ticket(encoded.as_bytes()).as_deref(), Some("ST-1"));
    assert_eq!(logged_out_ticket(logout_request("ST-1").as_bytes()).as_deref(), Some("ST-1"));
    assert_eq!(logged_out_ticket(b"\xff"), None);
    // The time of a message grows with the square of its attributes.
    let attributes: String = (0..20_000).map(|number| format!(" a{number}=''")).collect();
    let wide = logout_request("ST-1").replacen(
        "<samlp:SessionIndex",
        &format!("<Wide{attributes}/><samlp:SessionIndex"),
        1,
    );
    assert_eq!(logged_out_ticket(wide.as_bytes()), None);
}

#[test]
fn absolute_callback_is_the_service() {
    let bench = bench();
    let more = json!({ "cas_callback_uri": "https://shop.test/cb" });
    let plugin = bench.plugin("cas-auth", settings(&more));
    let reply = bench.run(&plugin, "GET /a HTTP/1.1");
    let expected = "http://cas.test/cas/login?service=https%3A%2F%2Fshop.test%2Fcb%3Fstate%3D";
    assert!(reply.field("Location").is_some_and(|location| location.starts_with(expected)));
    assert_eq!(bench.run(&plugin, "POST /cb HTTP/1.1").status, 400);
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (more, path) in [
        (json!({ "idp_uri": "cas.test" }), "idp_uri"),
        (json!({ "idp_uri": "http://cas.test/?a" }), "idp_uri"),
        (json!({ "cas_callback_uri": "callback" }), "cas_callback_uri"),
        (json!({ "cas_callback_uri": "https://shop.test" }), "cas_callback_uri"),
        (json!({ "cas_callback_uri": "/a?b" }), "cas_callback_uri"),
        (json!({ "logout_uri": "logout" }), "logout_uri"),
        (json!({ "cookie": { "secret": "short" } }), "cookie.secret"),
        (json!({ "cookie": { "secret": SECRET, "samesite": "None", "secure": false } }), "cookie.samesite"),
        (json!({ "cookie": { "secret": SECRET, "samesite": "Strict" } }), "cookie.samesite"),
    ] {
        let refused = PluginBench::new().build("cas-auth", settings(&more)).err();
        assert_eq!(refused.map(|refused| refused.path).as_deref(), Some(path), "{more}");
    }
}
