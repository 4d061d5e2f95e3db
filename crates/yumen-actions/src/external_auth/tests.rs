use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use prost::Message;
use serde_json::{Value, json};
use yumen_base::Now;
use yumen_http::{HeadLimits, RequestHead, parse};
use yumen_plugin::{ClientInfo, ConsumerIndex, PluginInstance, StillHost};

use super::check_call::{
    AdmittedCheck, CheckField, CheckFieldOption, CheckFlag, CheckRequest, CheckResponse, CheckStatus,
    DeniedCheck,
};
use super::*;
use crate::testing;

type Answer = Result<SubrequestResponse, SubrequestFault>;

/// The outcome of a request.
struct Outcome {
    asked: SubrequestSpec,
    /// Status and fields of the refusal, and its body.
    refused: Option<(u16, Vec<String>, String)>,
    request: Vec<String>,
    response: Vec<String>,
}

fn lines(fields: &Fields) -> Vec<String> {
    let line = |(name, value): (&[u8], &[u8])| {
        format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    fields.iter().map(line).collect()
}

fn run(auth: Value, request: &str, answer: Answer) -> Outcome {
    let mut written = json!({"upstream_id": "1"});
    written.as_object_mut().unwrap().extend(auth.as_object().unwrap().clone());
    let instances = testing::instances(json!({ "external_auth": written }));
    let [instance] = &*instances else { panic!("one instance") };
    let instance: &PluginInstance = instance;
    let text = format!("{request}\n\n").replace("\n\n\n", "\n\n").replace('\n', "\r\n");
    let mut head = RequestHead::default();
    parse::request(text.as_bytes(), 0, &HeadLimits::default(), &mut head).expect("a well-formed request");
    let client = ClientInfo {
        peer: "192.0.2.7:4711".parse().unwrap(),
        local: "198.51.100.1:80".parse().unwrap(),
        tls: None,
        connection_id: 1,
        listener: Default::default(),
        mapped_port: 0,
    };
    let host = StillHost::answering(answer);
    let consumers = ConsumerIndex::default();
    let mut ex = Exchange::new(head, &client, Now::default(), &host, &consumers);
    let refused = {
        let mut step = instance.plugin.access(&mut ex);
        if let Step::Wait(future) = step {
            let mut future = pin!(future);
            step = match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(step) => step,
                Poll::Pending => panic!("the answer is ready"),
            };
        }
        match step {
            Step::Respond(refusal) => {
                let body = String::from_utf8_lossy(&refusal.body).into_owned();
                Some((refusal.status, lines(refusal.fields()), body))
            }
            Step::Continue => None,
            _ => panic!("{request}: neither a refusal nor an admission"),
        }
    };
    let mut response = ResponseHead::default();
    response.fields.add("X-Up", b"1");
    if instance.phases.has(PhaseSet::RESPONSE_HEAD) {
        instance.plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut response);
    }
    let request = lines(&ex.request.fields);
    drop(ex);
    let asked = host.asked.take().expect("the service is asked");
    Outcome { asked, refused, request, response: lines(&response.fields) }
}

fn http(status: u16, fields: &[(&str, &str)], body: &str) -> Answer {
    let mut answer = SubrequestResponse { status, body: Some(body.into()), ..SubrequestResponse::default() };
    fields.iter().for_each(|(name, value)| answer.fields.add(name, value.as_bytes()));
    Ok(answer)
}

#[test]
fn a_service_over_http_receives_method_path_and_listed_fields() {
    let request = "PUT /a/b?c=1 HTTP/1.1\nHost: shop.test\nAuthorization: x\nX-User: ada\nX-Other: 1";
    let check = |auth: Value, target: &str, fields: &[&str]| {
        let Outcome { asked, .. } = run(auth.clone(), request, http(200, &[], ""));
        assert_eq!((asked.method.name(), &*asked.authority), ("PUT", "shop.test"));
        assert_eq!((&*asked.target, asked.timeout_ms), (target, 10_000), "{auth}");
        assert_eq!(lines(&asked.fields), fields, "{auth}");
    };
    check(json!({}), "/a/b?c=1", &["Authorization: x"]);
    check(json!({"allowed_headers": ["x-user"]}), "/a/b?c=1", &["Authorization: x", "X-User: ada"]);
    check(json!({"path": "/auth/"}), "/auth/a/b?c=1", &["Authorization: x"]);
}

#[test]
fn an_admission_over_http_changes_the_request() {
    let request = "GET / HTTP/1.1\nHost: a\nX-User: forged\nx_user: forged\nContent-Type: a/b";
    let answer =
        || http(200, &[("X-User", "ada"), ("X-User", "b"), ("Content-Type", "c/d"), ("Host", "evil")], "");
    let check = |auth: Value, expected: &[&str]| {
        let outcome = run(auth.clone(), request, answer());
        assert!(outcome.refused.is_none(), "{auth}");
        assert_eq!(outcome.request, expected, "{auth}");
        assert_eq!(outcome.response, ["X-Up: 1"]);
    };
    check(json!({}), &["Host: a", "Content-Type: a/b", "X-User: ada", "X-User: b"]);
    // A listed field that the service did not send is not the client's to choose.
    check(
        json!({"allowed_response_headers": ["x-role"]}),
        &["Host: a", "X-User: forged", "x_user: forged", "Content-Type: a/b"],
    );
    check(
        json!({"allowed_response_headers": ["x-user", "content-type"]}),
        &["Host: a", "X-User: ada", "X-User: b", "Content-Type: c/d"],
    );
}

#[test]
fn a_refusal_over_http_is_passed_on() {
    let request = "GET / HTTP/1.1\nHost: a";
    let answer = http(302, &[("Location", "/login"), ("Set-Cookie", "a=b"), ("Connection", "close")], "go");
    let outcome = run(json!({}), request, answer);
    let fields = vec!["Location: /login".to_owned(), "Set-Cookie: a=b".to_owned()];
    assert_eq!(outcome.refused, Some((302, fields, "go".to_owned())));
    // Only 200 admits.
    assert_eq!(run(json!({}), request, http(204, &[], "")).refused.unwrap().0, 204);
    for fault in [SubrequestFault::NoEndpoint, SubrequestFault::ConnectionLost, SubrequestFault::Timeout] {
        assert_eq!(run(json!({}), request, Err(fault)).refused.unwrap().0, 403, "{fault}");
        let cut = http(200, &[], "").map(|answer| SubrequestResponse { fault: Some(fault), ..answer });
        assert_eq!(run(json!({}), request, cut).refused.unwrap().0, 403, "{fault}");
    }
}

fn option(name: &str, value: &str, append: bool, append_action: i32) -> CheckFieldOption {
    let header = CheckField { key: name.into(), value: value.into(), raw_value: Vec::new() };
    CheckFieldOption { header: Some(header), append: Some(CheckFlag { value: append }), append_action }
}

fn grpc(message: &CheckResponse, trailers: &str) -> Answer {
    let message = message.encode_to_vec();
    let prefix = [&[0], &(message.len() as u32).to_be_bytes()[..]].concat();
    let body = Some([&*prefix, &message].concat());
    Ok(SubrequestResponse { status: 200, body, trailers: trailers.into(), ..SubrequestResponse::default() })
}

#[test]
fn a_service_over_grpc_receives_the_attributes() {
    let request = "GET /a?b=c HTTP/1.1\nHost: shop.test\nX-A: 1\nx-a: 2\nConnection: x-a";
    let Outcome { asked, .. } = run(json!({"protocol": "grpc"}), request, Err(SubrequestFault::Timeout));
    assert_eq!(asked.target, "/envoy.service.auth.v3.Authorization/Check");
    assert_eq!(asked.body.len(), 5 + u32::from_be_bytes(asked.body[1..5].try_into().unwrap()) as usize);
    let attributes = CheckRequest::decode(&asked.body[5..]).unwrap().attributes.unwrap();
    let source = attributes.source.unwrap().address.unwrap().socket_address.unwrap();
    assert_eq!((&*source.address, source.port_value), ("192.0.2.7", 4711));
    let http = attributes.request.unwrap().http.unwrap();
    assert_eq!((&*http.method, &*http.path, &*http.host), ("GET", "/a?b=c", "shop.test"));
    assert_eq!((&*http.scheme, &*http.protocol, http.size), ("http", "HTTP/1.1", 0));
    let names: Vec<&str> = http.headers.keys().map(String::as_str).collect();
    assert_eq!(names, [":authority", ":method", ":path", ":scheme", "x-a"]);
    assert_eq!(http.headers["x-a"], "1,2");
    let listed = json!({"protocol": "grpc", "allowed_headers": ["x-b"]});
    let Outcome { asked, .. } = run(listed, request, Err(SubrequestFault::Timeout));
    let attributes = CheckRequest::decode(&asked.body[5..]).unwrap().attributes.unwrap();
    assert!(!attributes.request.unwrap().http.unwrap().headers.contains_key("x-a"));
}

#[test]
fn an_admission_over_grpc_changes_request_and_response() {
    let ok = AdmittedCheck {
        headers: vec![
            option("x-user", "ada", false, 0),
            option("x-more", "2", true, 0),
            option("x-more", "3", false, 1),
            option("x-absent", "4", false, 3),
            option("host", "evil", false, 0),
            option("x-cut", "a\r\nX-Evil: 1", false, 0),
        ],
        headers_to_remove: vec!["x-gone".into(), "host".into()],
        response_headers_to_add: vec![option("x-decided", "yes", false, 0)],
    };
    let answer = CheckResponse { status: Some(CheckStatus { code: 0 }), ok: Some(ok), denied: None };
    let request = "GET / HTTP/1.1\nHost: a\nX-User: forged\nX-More: 1\nX-Gone: 1";
    let outcome = run(json!({"protocol": "grpc"}), request, grpc(&answer, "grpc-status: 0\r\n"));
    assert!(outcome.refused.is_none());
    assert_eq!(outcome.request, ["Host: a", "X-More: 1", "x-user: ada", "x-more: 2"]);
    assert_eq!(outcome.response, ["X-Up: 1", "x-decided: yes"]);
}

#[test]
fn everything_but_an_admission_over_grpc_refuses() {
    let request = "GET / HTTP/1.1\nHost: a";
    let check = |answer: Answer, expected: (u16, &[&str], &str)| {
        let (status, fields, body) =
            run(json!({"protocol": "grpc"}), request, answer).refused.expect("refused");
        assert_eq!(
            (status, &*fields, &*body),
            (expected.0, &*expected.1.iter().map(|s| s.to_string()).collect::<Vec<_>>(), expected.2)
        );
    };
    let denied = |code: i32| CheckResponse {
        status: Some(CheckStatus { code: 7 }),
        denied: Some(DeniedCheck {
            status: Some(CheckStatus { code }),
            headers: vec![option("location", "/login", false, 0), option("content-length", "9", false, 0)],
            body: "no".into(),
        }),
        ok: None,
    };
    let ok = "grpc-status: 0\r\n";
    check(grpc(&denied(401), ok), (401, &["location: /login"], "no"));
    check(grpc(&denied(0), ok), (403, &["location: /login"], "no"));
    let bare = CheckResponse { status: Some(CheckStatus { code: 7 }), denied: None, ok: None };
    check(grpc(&bare, ok), (403, &[], ""));
    let undecided = "{\"error_msg\":\"the authorization service gave no decision\"}\n";
    let json: &[&str] = &["Content-Type: application/json"];
    let admitted = CheckResponse::default();
    // Without the status of the call, an admission is incomplete.
    check(grpc(&admitted, ""), (403, json, undecided));
    check(grpc(&admitted, "grpc-status: 14\r\n"), (403, json, undecided));
    check(Err(SubrequestFault::Timeout), (403, json, undecided));
    for body in [&b""[..], b"\x01\0\0\0\0", b"\0\0\0\0\x05a", b"\0\0\0\0\x01\xff"] {
        let broken = SubrequestResponse {
            status: 200,
            body: Some(body.into()),
            trailers: ok.into(),
            ..SubrequestResponse::default()
        };
        check(Ok(broken), (403, json, undecided));
    }
}

#[test]
fn settings_without_effect_are_refused() {
    for (member, value) in [("path", json!("/a")), ("allowed_response_headers", json!(["a"]))] {
        let spec =
            testing::spec(json!({"external_auth": {"upstream_id": "1", "protocol": "grpc", member: value}}));
        let error = crate::build(&spec, &"routes/1".into(), &testing::FewUpstreams).unwrap_err();
        assert_eq!(error.path, format!("external_auth.{member}"));
    }
}
