use serde_json::{Value, json};
use yumen_plugin::{Method, SubrequestFault, SubrequestResponse, SubrequestSpec};

use crate::testing::{InlineUpstreams, PluginBench, TestReply, service_response};

/// The result of a request, and the subrequests that it caused.
fn run(
    more: Value,
    answer: Result<SubrequestResponse, SubrequestFault>,
    request: &str,
) -> (TestReply, Vec<SubrequestSpec>) {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(InlineUpstreams));
    bench.host.answer = Some(answer);
    let mut settings = json!({ "uri": "http://auth.test:81/check?a=b" });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let reply = bench.run(&bench.plugin("forward-auth", settings), request);
    let subrequest = bench.host.subrequests.take();
    (reply, subrequest)
}

fn field(question: &SubrequestSpec, name: &str) -> Option<String> {
    question.fields.get(name).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[test]
fn auth_service_receives_the_request() {
    let settings = json!({
        "request_headers": ["authorization", "X-Forwarded-Method", "connection", "none"],
        "extra_headers": { "X-Who": "$remote_addr $arg_q" },
    });
    let request = "PUT /orders?q=1%0d%0a2 HTTP/1.1\nHost: shop.test\nAuthorization: t\nX-Forwarded-Method: GET\nConnection: close\nX-Other: no";
    let (reply, subrequest) = run(settings, service_response(200, &[], ""), request);
    assert_eq!(reply.upstream_line(), "PUT /orders?q=1%0d%0a2");
    let [question] = &subrequest[..] else { panic!("asked {} times", subrequest.len()) };
    assert_eq!((question.upstream, question.method), (7, Method::Get));
    assert_eq!((&*question.authority, &*question.target), ("auth.test:81", "/check?a=b"));
    for (name, expected) in [
        ("X-Forwarded-Proto", Some("http")),
        ("X-Forwarded-Method", Some("PUT")),
        ("X-Forwarded-Host", Some("shop.test")),
        ("X-Forwarded-Uri", Some("/orders?q=1%0d%0a2")),
        ("X-Forwarded-For", Some("127.0.0.1")),
        ("Authorization", Some("t")),
        ("Connection", None),
        ("X-Other", None),
    ] {
        assert_eq!(field(question, name).as_deref(), expected, "{name}");
    }
    // A line feed in a variable does not end the field.
    assert!(field(question, "X-Who").is_some_and(|who| !who.contains(['\r', '\n'])));
    assert!(question.keeps && question.timeout_ms == 3000 && question.body.is_empty());
}

#[test]
fn a_service_asked_by_post_gets_the_body() {
    let settings = json!({ "request_method": "POST", "keepalive": false, "timeout": 7 });
    let (reply, subrequest) =
        run(settings, service_response(204, &[], ""), "POST / HTTP/1.1\nHost: a\n\nhello");
    assert_eq!(reply.upstream_line(), "POST /");
    assert_eq!((subrequest[0].method, &subrequest[0].body[..]), (Method::Post, &b"hello"[..]));
    assert!(!subrequest[0].keeps && subrequest[0].timeout_ms == 7);
}

#[test]
fn upstream_gets_fields_of_the_service_only_from_the_service() {
    let settings = json!({ "upstream_headers": ["X-User", "X-Roles"] });
    let request = "GET / HTTP/1.1\nHost: a\nX-User: forged\nX-Roles: forged";
    let (reply, _) =
        run(settings, service_response(200, &[("X-User", "jack"), ("X-New", "no")], ""), request);
    assert_eq!(reply.upstream_field("X-User").as_deref(), Some("jack"));
    assert_eq!((reply.upstream_field("X-Roles"), reply.upstream_field("X-New")), (None, None));
    // The same holds if the service does not respond and the request passes.
    let settings = json!({ "upstream_headers": ["X-User"], "allow_degradation": true });
    let (reply, _) = run(settings, Err(SubrequestFault::ConnectionLost), request);
    assert_eq!((reply.status, reply.upstream_field("X-User")), (200, None));
}

#[test]
fn aliases_of_service_fields_are_removed() {
    let settings = json!({ "upstream_headers": ["X-User", "X_User", "x-user", "X-Roles"] });
    let request = "GET / HTTP/1.1\nHost: a\nX_User: forged\nX_roles: forged\nX_Other: kept";
    let answered = [("X-User", "jack"), ("X-User", "joe"), ("X_User", "jill")];
    let (reply, _) = run(settings, service_response(200, &answered, ""), request);
    let fields = reply.upstream.expect("it went upstream")[1..].to_vec();
    assert_eq!(fields, ["Host: a", "X_Other: kept", "X-User: jack", "X-User: joe", "X_User: jill"]);
}

#[test]
fn a_refused_client_gets_the_services_service_response() {
    let settings = json!({ "client_headers": ["Location", "Set-Cookie", "Content-Length"] });
    let fields = [
        ("Location", "/login"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("Content-Length", "5"),
        ("Content-Type", "text/x"),
        ("X-Secret", "no"),
    ];
    let (reply, _) = run(settings, service_response(302, &fields, "login"), "GET / HTTP/1.1\nHost: a");
    assert_eq!((reply.status, reply.body.as_str(), reply.upstream.is_none()), (302, "login", true));
    for (name, expected) in [
        ("Location", Some("/login")),
        ("Set-Cookie", Some("a=1|b=2")),
        ("Content-Type", Some("text/x")),
        ("X-Secret", None),
    ] {
        assert_eq!(reply.field(name).as_deref(), expected, "{name}");
    }
}

#[test]
fn a_refusal_stands_without_its_body() {
    for settings in [json!({}), json!({ "allow_degradation": true })] {
        let cut = service_response(403, &[("Content-Type", "text/x")], "")
            .map(|answer| SubrequestResponse { body: None, ..answer });
        let (reply, _) = run(settings, cut, "GET / HTTP/1.1\nHost: a");
        assert_eq!((reply.status, reply.body.as_str(), reply.upstream.is_none()), (403, "", true));
    }
}

#[test]
fn further_fields_say_nothing_of_the_connection_and_name_the_host_once() {
    let ask = |host: &str, target: &str| {
        let settings = json!({ "extra_headers": {
            "Content-Length": "5", "transfer-encoding": "chunked", "Connection": "close", "Host": host, "X-A": "b",
        } });
        let (_, subrequest) =
            run(settings, service_response(200, &[], ""), &format!("GET {target} HTTP/1.1\nHost: a"));
        for name in ["Content-Length", "Transfer-Encoding", "Connection", "Host"] {
            assert_eq!(field(&subrequest[0], name), None, "{name}");
        }
        assert_eq!(field(&subrequest[0], "X-A").as_deref(), Some("b"));
        subrequest[0].authority.clone()
    };
    assert_eq!(ask("inner.test:1", "/"), "inner.test:1");
    assert_eq!(ask("${arg_h}.test", "/?h=x"), "x.test");
    // An impossible host is ignored, and cannot inject a line.
    assert_eq!(ask("$arg_h", "/?h=x%0d%0aY:z"), "auth.test:81");
    assert_eq!(ask("$arg_none", "/"), "auth.test:81");
}

#[test]
fn silence_is_a_refusal_unless_degradation_is_allowed() {
    for (settings, status) in [
        (json!({}), 403),
        (json!({ "status_on_error": 503 }), 503),
        (json!({ "allow_degradation": true }), 200),
    ] {
        for fault in [SubrequestFault::NoEndpoint, SubrequestFault::ConnectionLost, SubrequestFault::Timeout]
        {
            let (reply, _) = run(settings.clone(), Err(fault), "GET / HTTP/1.1\nHost: a");
            assert_eq!(
                (reply.status, reply.upstream.is_some()),
                (status, status == 200),
                "{settings} {fault}"
            );
        }
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (settings, path) in [
        (json!({ "uri": "auth.test/x" }), "uri"),
        (json!({ "uri": "ftp://auth.test" }), "uri"),
        (json!({ "uri": "http://auth.test:99999/" }), "uri"),
        (json!({ "uri": "http://auth.test:+80/" }), "uri"),
        (json!({ "uri": "http://user@auth.test/" }), "uri"),
        (json!({ "uri": "http://auth.test/a b" }), "uri"),
        (json!({ "uri": "http://" }), "uri"),
        (json!({ "uri": "http://auth.test", "request_headers": ["a b"] }), "request_headers"),
        (json!({ "uri": "http://auth.test", "extra_headers": { "a b": "c" } }), "extra_headers"),
    ] {
        let refused = PluginBench::new().build("forward-auth", settings.clone()).err();
        assert_eq!(refused.map(|refused| refused.path).as_deref(), Some(path), "{settings}");
    }
    let uri = "http://user:secret@auth.test/x";
    let refused = PluginBench::new().build("forward-auth", json!({ "uri": uri })).err().expect("a refusal");
    assert!(!refused.message.contains("secret"), "{}", refused.message);
    for uri in ["https://auth.test", "http://[::1]:80/x", "HTTP://auth.test?x=y"] {
        assert!(PluginBench::new().build("forward-auth", json!({ "uri": uri })).is_ok(), "{uri}");
    }
}
