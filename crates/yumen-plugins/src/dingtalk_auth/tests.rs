use serde_json::{Value, json};
use yumen_plugin::{SubrequestFault, SubrequestResponse};

use crate::testing::{InlineUpstreams, PluginBench, TestReply, service_response};

type ServiceAnswer = Result<SubrequestResponse, SubrequestFault>;

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(InlineUpstreams));
    bench
}

fn run(bench: &PluginBench, request: &str) -> TestReply {
    let settings = json!({
        "app_key": "app", "app_secret": "s3cret", "secret": "cookie-secret",
        "redirect_uri": "https://shop.test/login",
    });
    bench.run(&bench.plugin("dingtalk-auth", settings), request)
}

fn document(status: u16, document: &Value) -> ServiceAnswer {
    service_response(status, &[], &document.to_string())
}

fn token() -> ServiceAnswer {
    document(200, &json!({ "accessToken": "at-1", "expireIn": 7200 }))
}

fn user() -> ServiceAnswer {
    document(200, &json!({ "errcode": 0, "result": { "userid": "u1" } }))
}

#[test]
fn code_becomes_a_session_with_the_user() {
    let bench = bench();
    let reply = run(&bench, "GET /a HTTP/1.1");
    let location = reply.field("Location").unwrap_or_default();
    assert!(reply.status == 302 && location.starts_with("https://shop.test/login?state="), "{location}");
    bench.host.answers.borrow_mut().extend([token(), user()]);
    let reply = run(&bench, "GET /a HTTP/1.1\nX-DingTalk-Code: c1\nX-Userinfo: forged");
    let user = "eyJ1c2VyaWQiOiJ1MSJ9";
    assert_eq!(reply.upstream_field("X-Userinfo").as_deref(), Some(user));
    let calls = bench.host.subrequests.take();
    let body = |at: usize| serde_json::from_slice::<Value>(&calls[at].body).unwrap();
    let of_application = json!({ "appKey": "app", "appSecret": "s3cret" });
    assert_eq!((calls[0].target.as_str(), body(0)), ("/v1.0/oauth2/accessToken", of_application));
    let target = "/topapi/v2/user/getuserinfo?access_token=at-1";
    assert_eq!((calls[1].target.as_str(), body(1)), (target, json!({ "code": "c1" })));
    assert!(!calls[1].may_repeat);
    let cookie = reply.field("Set-Cookie").expect("a session begins");
    let session = cookie.split(';').next().unwrap();
    let reply = run(&bench, &format!("GET /a HTTP/1.1\nCookie: {session}"));
    assert_eq!(reply.upstream_field("X-Userinfo").as_deref(), Some(user));
    assert!(bench.host.subrequests.take().is_empty());
    // The same secret in another application opens no session of this one.
    let other = json!({
        "app_key": "other", "app_secret": "s3cret", "secret": "cookie-secret",
        "redirect_uri": "https://shop.test/login",
    });
    let other = bench.plugin("dingtalk-auth", other);
    assert_eq!(bench.run(&other, &format!("GET /a HTTP/1.1\nCookie: {session}")).status, 302);
}

#[test]
fn only_a_user_of_the_provider_is_admitted() {
    fn check(answers: Vec<ServiceAnswer>, status: u16) {
        let bench = bench();
        bench.host.answers.borrow_mut().extend(answers.clone());
        let reply = run(&bench, "GET /a HTTP/1.1\nX-DingTalk-Code: c1");
        assert_eq!((reply.status, reply.field("Set-Cookie")), (status, None), "{answers:?}");
    }
    check(vec![token(), document(200, &json!({ "errcode": 40078, "errmsg": "invalid code" }))], 401);
    check(vec![token(), document(200, &json!({ "errcode": 1, "result": { "userid": "u1" } }))], 401);
    check(vec![token(), document(200, &json!({ "result": { "userid": "u1" } }))], 401);
    check(vec![token(), Err(SubrequestFault::Timeout)], 503);
    check(vec![document(400, &json!({ "code": "invalidClientIdOrSecret" }))], 503);
    check(vec![Err(SubrequestFault::NoEndpoint)], 503);
}
