use serde_json::{Value, json};
use yumen_plugin::{Method, SubrequestFault, SubrequestResponse};

use crate::testing::{InlineUpstreams, PluginBench, TestReply, service_response};

type ServiceAnswer = Result<SubrequestResponse, SubrequestFault>;

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(InlineUpstreams));
    let shop = bench.add_consumer("shop");
    let credential = json!({ "appid": "shop", "server": "http://wolf.test:12180/base/" });
    bench.add_key(&shop, "wolf-rbac", credential, None);
    bench
}

fn run(bench: &PluginBench, request: &str) -> TestReply {
    bench.run(&bench.plugin("wolf-rbac", json!({})), request)
}

fn document(status: u16, document: &Value) -> ServiceAnswer {
    service_response(status, &[], &document.to_string())
}

fn allowed() -> ServiceAnswer {
    let user = json!({ "id": 100, "username": "ann", "nickname": "Ann é/" });
    document(200, &json!({ "ok": true, "data": { "userInfo": user } }))
}

#[test]
fn server_of_the_consumer_decides_about_the_request() {
    let bench = bench();
    bench.host.answers.borrow_mut().push_back(allowed());
    let request = "PUT /a%20b?q=1 HTTP/1.1\nx-rbac-token: V1#shop#t#1\nX-UserId: 1\nX_Username: root";
    let reply = run(&bench, request);
    let calls = bench.host.subrequests.take();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (calls[0].method, calls[0].authority.as_str(), calls[0].target.as_str()),
        (
            Method::Get,
            "wolf.test:12180",
            "/base/wolf/rbac/access_check?appID=shop&resName=%2Fa%20b&action=PUT&clientIP=127.0.0.1"
        )
    );
    assert_eq!(calls[0].fields.get("x-rbac-token"), Some(&b"t#1"[..]));
    for (name, expected) in [
        ("X-Consumer-Username", Some("shop")),
        ("X-UserId", Some("100")),
        ("X-Username", Some("ann")),
        ("X-Nickname", Some("Ann%20%C3%A9%2F")),
        ("X_Username", None),
    ] {
        assert_eq!(reply.upstream_field(name).as_deref(), expected, "{name}");
    }
    assert_eq!(reply.field("X-UserId").as_deref(), Some("100"));
}

#[test]
fn client_sends_no_user_field_of_any_consumer() {
    let mut bench = bench();
    let bank = bench.add_consumer("bank");
    let credential = json!({ "appid": "bank", "server": "http://wolf.test", "header_prefix": "X-Bank-" });
    bench.add_key(&bank, "wolf-rbac", credential, None);
    bench.host.answers.borrow_mut().push_back(allowed());
    let request =
        "GET / HTTP/1.1\nAuthorization: V1#shop#t\nX-Bank-UserId: 1\nx_bank_username: root\nX-Bank: kept";
    let reply = run(&bench, request);
    for (name, expected) in [
        ("X-UserId", Some("100")),
        ("X-Bank-UserId", None),
        ("X_Bank_Username", None),
        ("X-Bank", Some("kept")),
    ] {
        assert_eq!(reply.upstream_field(name).as_deref(), expected, "{name}");
    }
}

#[test]
fn token_is_read_from_four_places_in_order() {
    let bench = bench();
    let (missing, malformed) = ("Missing rbac token in request", "invalid rbac token: parse failed");
    for (request, expected) in [
        ("GET /?rbac_token=V1%23shop%23q HTTP/1.1\nAuthorization: V1#shop#a", Ok("q")),
        ("GET / HTTP/1.1\nAuthorization: V1#shop#a\nx-rbac-token: V1#shop#f", Ok("a")),
        ("GET / HTTP/1.1\nx-rbac-token: V1#shop#f\nCookie: x-rbac-token=V1#shop#c", Ok("f")),
        ("GET / HTTP/1.1\nCookie: a=b; x-rbac-token=V1#shop#c", Ok("c")),
        ("GET / HTTP/1.1", Err(missing)),
        ("GET / HTTP/1.1\nAuthorization: Bearer x", Err(malformed)),
        ("GET / HTTP/1.1\nAuthorization: V2#shop#t", Err(malformed)),
        ("GET / HTTP/1.1\nAuthorization: V1#shop", Err(malformed)),
        ("GET / HTTP/1.1\nAuthorization: V1#shop#", Err(malformed)),
        ("GET / HTTP/1.1\nAuthorization: V1##t", Err(malformed)),
        ("GET /?rbac_token=V1%23shop%23a%0d%0ax:y HTTP/1.1", Err(malformed)),
        ("GET /?rbac_token=V1%23shop%23a&rbac_token=b HTTP/1.1\nx-rbac-token: V1#shop#f", Err(malformed)),
        ("GET / HTTP/1.1\nAuthorization: V1#other#t", Err("Invalid appid in rbac token")),
    ] {
        bench.host.answers.borrow_mut().clear();
        bench.host.answers.borrow_mut().push_back(allowed());
        let reply = run(&bench, request);
        let calls = bench.host.subrequests.take();
        match expected {
            Ok(token) => {
                assert_eq!(reply.status, 200, "{request}");
                assert_eq!(calls[0].fields.get("x-rbac-token"), Some(token.as_bytes()), "{request}");
            }
            Err(message) => {
                let body = format!("{{\"message\":\"{message}\"}}\n");
                assert_eq!((reply.status, reply.body), (401, body), "{request}");
                assert!(calls.is_empty(), "{request}");
            }
        }
    }
}

#[test]
fn only_a_decision_of_the_server_admits() {
    fn check(answers: Vec<ServiceAnswer>, status: u16, body: &str) {
        let bench = bench();
        let count = answers.len();
        bench.host.answers.borrow_mut().extend(answers.clone());
        let reply = run(&bench, "GET / HTTP/1.1\nAuthorization: V1#shop#t\nX-UserId: 1");
        assert_eq!((reply.status, reply.body.trim_end()), (status, body), "{answers:?}");
        assert!(reply.upstream.is_none());
        assert_eq!(bench.host.subrequests.take().len(), count, "{answers:?}");
    }
    let denied = json!({
        "ok": false, "reason": "no permission to access",
        "data": { "userInfo": { "username": "ann", "nickname": "Ann" } },
    });
    let body = r#"{"message":"no permission to access","username":"ann","nickname":"Ann"}"#;
    check(vec![document(401, &denied)], 401, body);
    check(vec![document(403, &json!({ "reason": "no" }))], 403, r#"{"message":"no"}"#);
    check(vec![document(403, &json!({}))], 403, "{}");
    check(vec![document(200, &denied)], 403, body);
    check(vec![document(200, &json!({}))], 403, "{}");
    check(vec![document(200, &json!({ "ok": "true" }))], 403, "{}");
    check(vec![document(401, &json!({ "ok": true }))], 401, "{}");
    let unreadable = r#"{"message":"check permission failed! parse response json failed!"}"#;
    check(vec![service_response(200, &[], "ok")], 500, unreadable);
    check(vec![service_response(200, &[], "[]")], 500, unreadable);
    check(vec![service_response(401, &[], "no")], 401, unreadable);
    let cut = allowed().map(|answer| SubrequestResponse { fault: Some(SubrequestFault::Timeout), ..answer });
    check(vec![cut], 500, unreadable);
    let failed = |status: u16| format!(r#"{{"message":"request to wolf-server failed, status:{status}"}}"#);
    check(vec![document(302, &json!({}))], 500, &failed(302));
    check(vec![document(204, &json!({}))], 500, &failed(204));
    check(
        vec![document(502, &json!({})), document(500, &json!({})), document(503, &json!({}))],
        500,
        &failed(503),
    );
    let silent = r#"{"message":"request to wolf-server failed, err:no answer in time"}"#;
    check(vec![Err(SubrequestFault::Timeout)], 500, silent);
}

#[test]
fn server_with_a_passing_failure_is_asked_again() {
    let bench = bench();
    bench.host.answers.borrow_mut().extend([document(500, &json!({})), allowed()]);
    let reply = run(&bench, "GET / HTTP/1.1\nAuthorization: V1#shop#t");
    assert_eq!((reply.status, reply.slept.len()), (200, 1));
}

#[test]
fn members_of_a_user_end_no_field() {
    let bench = bench();
    let user = json!({ "id": "1\r\nX-Admin: 1", "username": "ann\n", "nickname": true });
    let answer = json!({ "ok": true, "data": { "userInfo": user } });
    bench.host.answers.borrow_mut().push_back(document(200, &answer));
    let reply = run(&bench, "GET / HTTP/1.1\nAuthorization: V1#shop#t\nX-Username: root");
    for name in ["X-UserId", "X-Username", "X-Nickname", "X-Admin"] {
        assert_eq!(reply.upstream_field(name), None, "{name}");
    }
}

/// Method, target, body and token.
type SentCall = (Method, String, Value, Option<String>);

/// The response of an API, and the call to the server: method, target and body.
fn api(request: &str, answer: Option<ServiceAnswer>) -> (TestReply, Option<SentCall>) {
    let bench = bench();
    bench.host.answers.borrow_mut().extend(answer);
    let reply = bench.run(&bench.plugin("public-api", json!({})), request);
    let call = bench.host.subrequests.take().pop().map(|call| {
        let token = call.fields.get("x-rbac-token").map(|token| String::from_utf8_lossy(token).into_owned());
        (call.method, call.target, serde_json::from_slice(&call.body).unwrap_or_default(), token)
    });
    (reply, call)
}

const LOGIN: &str = "POST /apisix/plugin/wolf-rbac/login HTTP/1.1\n";

#[test]
fn login_returns_the_token_of_the_application() {
    let data = json!({ "token": "t-1", "userInfo": { "username": "ann" } });
    let answer = || Some(document(200, &json!({ "ok": true, "data": data })));
    let arguments = json!({ "appid": "shop", "username": "ann", "password": "p&w" });
    let json_body = format!("{LOGIN}Content-Type: application/json; charset=utf-8\n\n{arguments}");
    let form = format!(
        "{LOGIN}Content-Type: application/x-www-form-urlencoded\n\nappid=shop&username=ann&password=p%26w"
    );
    for request in [json_body, form] {
        let (reply, call) = api(&request, answer());
        let expected = json!({ "rbac_token": "V1#shop#t-1", "user_info": { "username": "ann" } });
        assert_eq!(
            (reply.status, serde_json::from_str(&reply.body).ok()),
            (200, Some(expected)),
            "{request}"
        );
        let call = call.expect("the server is asked");
        assert_eq!(call, (Method::Post, "/base/wolf/rbac/login.rest".to_owned(), arguments.clone(), None));
    }
}

#[test]
fn other_apis_pass_the_token_on() {
    let token = "Authorization: V1#shop#t-1\n";
    let done = || Some(document(200, &json!({ "ok": true, "data": { "userInfo": { "id": 1 } } })));
    let put = format!(
        "PUT /apisix/plugin/wolf-rbac/change_pwd HTTP/1.1\n{token}Content-Type: application/json\n\n{{\"newPassword\":\"n\"}}"
    );
    let (reply, call) = api(&put, done());
    assert_eq!((reply.status, reply.body.as_str()), (200, "{\"message\":\"success to change password\"}\n"));
    let expected = (
        Method::Post,
        "/base/wolf/rbac/change_pwd".to_owned(),
        json!({ "newPassword": "n" }),
        Some("t-1".to_owned()),
    );
    assert_eq!(call, Some(expected));
    let (reply, call) = api(&format!("GET /apisix/plugin/wolf-rbac/user_info HTTP/1.1\n{token}"), done());
    assert_eq!((reply.status, reply.body.as_str()), (200, "{\"user_info\":{\"id\":1}}\n"));
    let expected = (Method::Get, "/base/wolf/rbac/user_info".to_owned(), json!({}), Some("t-1".to_owned()));
    assert_eq!(call, Some(expected));
}

#[test]
fn apis_refuse_what_they_cannot_do() {
    fn check(request: &str, answer: Option<ServiceAnswer>, status: u16, message: &str) {
        let (reply, _) = api(request, answer);
        let body = format!("{{\"message\":\"{message}\"}}\n");
        assert_eq!((reply.status, reply.body), (status, body), "{request}");
    }
    let login = |body: &str| format!("{LOGIN}Content-Type: application/json\n\n{body}");
    check(&login("[1]"), None, 400, "invalid request");
    check(&login("{"), None, 400, "invalid request");
    check(&login("{}"), None, 400, "appid is missing");
    check(LOGIN, None, 400, "appid is missing");
    check(&login(r#"{"appid":"other"}"#), None, 400, "appid not found");
    let shop = login(r#"{"appid":"shop"}"#);
    let failed = "request to wolf-server failed!";
    check(&shop, Some(Err(SubrequestFault::ConnectionLost)), 500, failed);
    check(&shop, Some(document(401, &json!({ "ok": true }))), 500, failed);
    check(&shop, Some(service_response(200, &[], "ok")), 500, failed);
    check(&shop, Some(document(200, &json!({ "ok": true, "data": {} }))), 500, failed);
    check(&shop, Some(document(200, &json!({ "ok": false, "reason": "ERR_PASSWORD" }))), 200, failed);
    let info = "GET /apisix/plugin/wolf-rbac/user_info HTTP/1.1\n";
    check(info, None, 401, "Missing rbac token in request");
    check(&format!("{info}x-rbac-token: V1#a"), None, 401, "invalid rbac token: parse failed");
    check(&format!("{info}x-rbac-token: V1#other#t"), None, 400, "appid not found");
}

#[test]
fn credentials_that_cannot_work_are_refused() {
    for (settings, path) in [
        (json!({ "server": "wolf" }), "server"),
        (json!({ "server": "http://wolf/?a=b" }), "server"),
        (json!({ "header_prefix": "X " }), "header_prefix"),
        (json!({ "appid": "" }), "appid"),
    ] {
        let refused = bench().credentials("wolf-rbac", settings.clone()).err();
        assert_eq!(refused.map(|refused| refused.path).as_deref(), Some(path), "{settings}");
    }
}
