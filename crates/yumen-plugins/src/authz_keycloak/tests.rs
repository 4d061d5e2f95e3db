use std::sync::Arc;

use serde_json::{Value, json};
use yumen_config::resource::UpstreamSpec;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::proto::ProtoDescriptors;
use yumen_plugin::{
    FetchRequest, FetchSource, FetchedCell, Method, ObjectLookup, SubrequestFault, SubrequestResponse,
    SubrequestSpec, UpstreamSlot,
};

use super::endpoints::UmaConfiguration;
use crate::testing::{InlineUpstreams, PluginBench, TestReply, service_response};

type ServiceAnswer = Result<SubrequestResponse, SubrequestFault>;

fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(InlineUpstreams));
    bench
}

fn settings(more: &Value) -> Value {
    let mut settings = json!({ "client_id": "shop", "token_endpoint": "http://kc.test/token" });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

/// The result of a request, and the calls that it caused.
fn run(more: &Value, answers: Vec<ServiceAnswer>, request: &str) -> (TestReply, Vec<SubrequestSpec>) {
    let bench = bench();
    bench.host.answers.borrow_mut().extend(answers);
    let reply = bench.run(&bench.plugin("authz-keycloak", settings(more)), request);
    (reply, bench.host.subrequests.take())
}

fn json_answer(status: u16, body: &Value) -> ServiceAnswer {
    service_response(status, &[("Content-Type", "application/json")], &body.to_string())
}

fn granted() -> ServiceAnswer {
    json_answer(200, &json!({ "result": true }))
}

fn body(call: &SubrequestSpec) -> &str {
    std::str::from_utf8(&call.body).unwrap()
}

const WITH_TOKEN: &str = "GET /orders?x=1 HTTP/1.1\nAuthorization: Bearer abc";

#[test]
fn decision_is_asked_with_the_token_of_the_client() {
    let more = json!({ "permissions": ["orders", "#read"] });
    let (reply, calls) = run(&more, vec![granted()], WITH_TOKEN);
    assert_eq!(reply.upstream_line(), "GET /orders?x=1");
    let [call] = &calls[..] else { panic!("{} calls", calls.len()) };
    assert_eq!(
        (call.method, call.authority.as_str(), call.target.as_str()),
        (Method::Post, "kc.test", "/token")
    );
    assert_eq!(call.fields.get("authorization"), Some(&b"Bearer abc"[..]));
    let expected = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Auma-ticket&audience=shop\
                    &response_mode=decision&permission=orders&permission=%23read";
    assert_eq!(body(call), expected);
}

#[test]
fn scheme_is_added_to_a_bare_token() {
    for (written, sent) in [("abc", "Bearer abc"), ("bearer abc", "bearer abc")] {
        let request = format!("GET / HTTP/1.1\nAuthorization: {written}");
        let (_, calls) = run(&json!({ "permissions": ["a"] }), vec![granted()], &request);
        assert_eq!(calls[0].fields.get("authorization"), Some(sent.as_bytes()));
    }
    for request in ["GET / HTTP/1.1", "GET / HTTP/1.1\nAuthorization: a\nAuthorization: b"] {
        let (reply, calls) = run(&json!({ "permissions": ["a"] }), vec![granted()], request);
        assert_eq!((reply.status, calls.len()), (401, 0));
        assert_eq!(reply.body, "{\"message\":\"Missing JWT token in request\"}\n");
    }
}

#[test]
fn method_becomes_the_scope_of_each_permission() {
    let more = json!({ "permissions": ["a", "b#read"], "http_method_as_scope": true });
    let (_, calls) = run(&more, vec![granted()], WITH_TOKEN);
    assert!(
        body(&calls[0]).ends_with("&permission=a%23GET&permission=b%23read%2C%20GET"),
        "{}",
        body(&calls[0])
    );
}

#[test]
fn only_a_decision_of_keycloak_admits() {
    fn check(answer: ServiceAnswer, status: u16, text: &str) {
        let (reply, _) = run(&json!({ "permissions": ["a"] }), vec![answer.clone()], WITH_TOKEN);
        assert_eq!((reply.status, reply.body.as_str()), (status, text), "{answer:?}");
        assert_eq!(reply.upstream.is_some(), status == 200);
    }
    check(granted(), 200, "ok\n");
    check(json_answer(200, &json!({ "result": false })), 503, "");
    check(service_response(200, &[], "<html>"), 503, "");
    check(service_response(302, &[("Location", "/login")], ""), 503, "");
    check(json_answer(403, &json!({ "error": "access_denied" })), 403, r#"{"error":"access_denied"}"#);
    check(json_answer(401, &json!({ "error": "invalid_grant" })), 401, r#"{"error":"invalid_grant"}"#);
    check(json_answer(500, &json!({})), 500, "{}");
    for fault in [SubrequestFault::NoEndpoint, SubrequestFault::Timeout, SubrequestFault::Busy] {
        check(Err(fault), 503, "");
    }
}

#[test]
fn denied_request_is_refused_or_redirected() {
    let denied = || vec![json_answer(403, &json!({ "error": "access_denied" }))];
    let more = json!({ "permissions": ["a"], "access_denied_redirect_uri": "https://shop.test/denied" });
    let (reply, _) = run(&more, denied(), WITH_TOKEN);
    assert_eq!((reply.status, reply.field("Location").as_deref()), (307, Some("https://shop.test/denied")));
    // Without a permission to ask for, nothing is asked.
    let (reply, calls) = run(&json!({}), vec![], WITH_TOKEN);
    assert_eq!((reply.status, calls.len()), (403, 0));
    assert_eq!(reply.body, "{\"error\":\"access_denied\",\"error_description\":\"not_authorized\"}\n");
    let more = json!({ "access_denied_redirect_uri": "https://shop.test/denied" });
    assert_eq!(run(&more, vec![], WITH_TOKEN).0.status, 307);
    let (reply, calls) =
        run(&json!({ "policy_enforcement_mode": "PERMISSIVE" }), vec![granted()], WITH_TOKEN);
    assert_eq!((reply.status, calls.len()), (200, 1));
}

/// Settings with paths that Keycloak knows.
fn lazy() -> Value {
    json!({
        "lazy_load_paths": true,
        "client_secret": "s3cret",
        "resource_registration_endpoint": "http://kc.test/resources",
    })
}

fn token(expires_in: u64) -> ServiceAnswer {
    let refresh = json!({ "refresh_token": "r1", "refresh_expires_in": 1800 });
    let mut document = json!({ "access_token": "sa", "expires_in": expires_in });
    document.as_object_mut().unwrap().extend(refresh.as_object().unwrap().clone());
    json_answer(200, &document)
}

#[test]
fn resources_are_looked_up_with_a_token_of_the_client_id() {
    let bench = bench();
    let plugin = bench.plugin("authz-keycloak", settings(&lazy()));
    let resources = || json_answer(200, &json!(["id-1"]));
    bench.host.answers.borrow_mut().extend([token(60), resources(), granted(), resources(), granted()]);
    for _ in 0..2 {
        assert_eq!(bench.run(&plugin, WITH_TOKEN).status, 200);
    }
    let calls = bench.host.subrequests.take();
    let targets: Vec<&str> = calls.iter().map(|call| call.target.as_str()).collect();
    let lookup = "/resources?uri=%2Forders&matchingUri=true";
    assert_eq!(targets, ["/token", lookup, "/token", lookup, "/token"]);
    assert_eq!(body(&calls[0]), "grant_type=client_credentials&client_id=shop&client_secret=s3cret");
    assert!(!calls[0].may_repeat && calls[2].may_repeat);
    assert_eq!(calls[1].fields.get("authorization"), Some(&b"Bearer sa"[..]));
    assert!(body(&calls[2]).ends_with("&permission=id-1"), "{}", body(&calls[2]));
    // After its end, the token is refreshed; a refused refresh token is replaced.
    bench.host.advance(std::time::Duration::from_secs(60));
    let refused = json_answer(400, &json!({ "error": "invalid_grant" }));
    bench.host.answers.borrow_mut().extend([refused, token(60), resources(), granted()]);
    assert_eq!(bench.run(&plugin, WITH_TOKEN).status, 200);
    let calls = bench.host.subrequests.take();
    assert!(body(&calls[0]).starts_with("grant_type=refresh_token&refresh_token=r1&client_id=shop"));
    assert!(body(&calls[1]).starts_with("grant_type=client_credentials"));
}

#[test]
fn failed_look_up_of_resources_refuses() {
    let resources = |body: Value| json_answer(200, &body);
    for answers in [
        vec![Err(SubrequestFault::Timeout)],
        vec![json_answer(401, &json!({ "error": "unauthorized_client" }))],
        vec![token(60), Err(SubrequestFault::ConnectionLost)],
        vec![token(60), json_answer(403, &json!([]))],
        vec![token(60), resources(json!({ "a": 1 }))],
    ] {
        let (reply, _) = run(&lazy(), answers.clone(), WITH_TOKEN);
        assert_eq!((reply.status, reply.upstream.is_some()), (503, false), "{answers:?}");
    }
    // A path without resources is refused by ENFORCING.
    let (reply, _) = run(&lazy(), vec![token(60), resources(json!([]))], WITH_TOKEN);
    assert_eq!(reply.status, 403);
}

#[test]
fn user_name_and_password_are_exchanged_for_a_token() {
    let more = json!({ "client_secret": "s", "password_grant_token_generation_incoming_uri": "/api/token" });
    let post = |form: &str| {
        format!("POST /api/token HTTP/1.1\nContent-Type: application/x-www-form-urlencoded\n\n{form}")
    };
    let answer = json_answer(200, &json!({ "access_token": "t" }));
    let (reply, calls) = run(&more, vec![answer], &post("username=ann&password=a%26b"));
    assert_eq!((reply.status, reply.body.as_str()), (200, r#"{"access_token":"t"}"#));
    assert_eq!(reply.field("Content-Type").as_deref(), Some("application/json"));
    let expected = "grant_type=password&client_id=shop&client_secret=s&username=ann&password=a%26b";
    assert_eq!((body(&calls[0]), calls[0].may_repeat), (expected, false));
    for (form, message) in [("password=b", "username is missing."), ("username=a", "password is missing.")] {
        let (reply, calls) = run(&more, vec![], &post(form));
        assert_eq!((reply.status, calls.len()), (422, 0));
        assert_eq!(reply.body, format!("{{\"message\":\"{message}\"}}\n"));
    }
    let (reply, _) = run(&more, vec![Err(SubrequestFault::Timeout)], &post("username=a&password=b"));
    let expected =
        "{\"message\":\"Accessing token endpoint URL (http://kc.test/token) failed: no answer in time\"}\n";
    assert_eq!((reply.status, reply.body.as_str()), (401, expected));
    // Other requests to the path need a token.
    assert_eq!(run(&more, vec![], "GET /api/token HTTP/1.1").0.status, 401);
}

/// Objects with a discovery document.
struct Discovered(Arc<FetchedCell>);

impl ObjectLookup for Discovered {
    fn proto(&self, _: &str) -> Option<Arc<ProtoDescriptors>> {
        None
    }

    fn upstream(&self, _: &str) -> Option<UpstreamSlot> {
        None
    }

    fn inline_upstream(&self, path: &str, _: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings> {
        Ok(UpstreamSlot::known(if path.starts_with("discovery.") { 8 } else { 7 }))
    }

    fn fetch(&self, request: FetchRequest) -> Arc<FetchedCell> {
        let FetchSource::Http(http) = request.source else { panic!("not a document") };
        assert_eq!((http.url.as_str(), request.refresh.interval_s), ("https://kc.test/uma2", 60));
        self.0.clone()
    }
}

#[test]
fn endpoints_come_from_the_discovery_document() {
    let cell = Arc::<FetchedCell>::default();
    let mut bench = PluginBench::new();
    bench.objects = Some(Box::new(Discovered(cell.clone())));
    let written = json!({
        "client_id": "shop", "discovery": "https://kc.test/uma2", "cache_ttl_seconds": 60, "permissions": ["a"],
    });
    // Fails closed until the document arrives.
    let reply = bench.run(&bench.plugin("authz-keycloak", written.clone()), WITH_TOKEN);
    assert_eq!((reply.status, reply.body.as_str()), (503, "Unable to determine token endpoint."));
    let document = json!({ "token_endpoint": "http://kc.test/realms/token", "issuer": "x" });
    cell.store(UmaConfiguration::parse(document.to_string().as_bytes()).unwrap());
    bench.host.answer = Some(granted());
    assert_eq!(bench.run(&bench.plugin("authz-keycloak", written), WITH_TOKEN).status, 200);
    let calls = bench.host.subrequests.take();
    assert_eq!((calls[0].upstream, calls[0].target.as_str()), (8, "/realms/token"));
    for broken in ["", "[]", "{}", r#"{"token_endpoint":1}"#] {
        assert!(UmaConfiguration::parse(broken.as_bytes()).is_err(), "{broken}");
    }
}

#[test]
fn settings_that_cannot_work_are_refused() {
    for (written, path) in [
        (json!({ "client_id": "a" }), ""),
        (json!({ "token_endpoint": "http://a" }), "client_id"),
        (json!({ "client_id": "a", "token_endpoint": "a" }), "token_endpoint"),
        (json!({ "client_id": "a", "discovery": "a" }), "discovery"),
        (json!({ "client_id": "a", "token_endpoint": "http://a", "lazy_load_paths": true }), ""),
        (json!({ "client_id": "a", "token_endpoint": "http://a", "timeout": 999 }), "timeout"),
        (json!({ "client_id": "a", "token_endpoint": "http://a", "grant_type": "x" }), "grant_type"),
        (
            json!({ "client_id": "a", "token_endpoint": "http://a", "access_denied_redirect_uri": "a b" }),
            "access_denied_redirect_uri",
        ),
    ] {
        let refused = PluginBench::new().build("authz-keycloak", written.clone()).err().expect("a refusal");
        assert_eq!(refused.path, path, "{written} {}", refused.message);
    }
}
