//! The login of the dashboard at an identity provider, the limit of failed logins, and keys in cookies.

use std::time::Instant;

use serde_json::{Value, json};

use crate::harness::idp::Idp;
use crate::harness::{Client, Gateway, Options, Reply, Scratch, eventually};

const ADMIN: &str = "0123456789abcdef-admin";
const VIEWER: &str = "0123456789abcdef-viewer";
/// Metrics of failed logins.
const FAILED: &str = "yumen_admin_login_failures_total{reason=\"openid\"}";
const LIMITED: &str = "yumen_admin_login_failures_total{reason=\"limited\"}";
const KEYS: &str = "  keys: [{name: ada, key: 0123456789abcdef-admin}, {name: vic, key: 0123456789abcdef-viewer, role: viewer}]";

fn launch(more: &str) -> Gateway {
    let node = format!("admin:\n{KEYS}\n{more}");
    Gateway::launch(Scratch::new(), &Options { node: &node, ..Options::default() }, &["--data-dir", "data"])
}

/// A gateway whose operators log in at the provider.
fn gateway(idp: &Idp, secret: &str) -> Gateway {
    launch(&format!(
        "  dashboard:\n    openid:\n      issuer: {}\n      client_id: me\n      client_secret: \"{secret}\"\n      \
         redirect_uri: http://127.0.0.1:9180/ui/callback\n      roles:\n        \
         - {{claim: realm.roles, values: [staff], role: viewer}}\n        \
         - {{claim: groups, values: [gateway-admins], role: admin}}\n",
        idp.issuer()
    ))
}

fn ask(gateway: &Gateway, line: &str, fields: &str) -> Reply {
    let head = format!(
        "{line} HTTP/1.1\r\nHost: {}\r\n{fields}Connection: close\r\nContent-Length: 0\r\n\r\n",
        gateway.admin
    );
    Client::connect(gateway.admin).send(head).reply()
}

fn cookie(reply: &Reply) -> String {
    let field = reply.field("set-cookie").unwrap_or_else(|| panic!("no cookie: {reply:?}"));
    field.split(';').next().unwrap().to_owned()
}

/// The cookie of a login that has begun, and the path of the callback.
fn begin(gateway: &Gateway, idp: &Idp) -> (String, String) {
    let start = ask(gateway, "GET /ui/login", "");
    assert_eq!(start.status, 302, "{}", start.text());
    let back = idp.log_in(start.field("location").unwrap());
    (cookie(&start), back[back.find("/ui/").unwrap()..].to_owned())
}

/// The fragment to which a callback leads.
fn call_back(gateway: &Gateway, path: &str, cookies: &str) -> (String, Reply) {
    let fields = format!("Cookie: {cookies}\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n");
    let reply = ask(gateway, &format!("GET {path}"), &fields);
    assert_eq!(reply.status, 302, "{}", reply.text());
    (reply.field("location").unwrap().to_owned(), reply)
}

/// The session of a user: its cookie and its token as fields, and the response of the login.
fn log_in(gateway: &Gateway, idp: &Idp) -> (String, Value) {
    let (seed, path) = begin(gateway, idp);
    let (location, reply) = call_back(gateway, &path, &seed);
    let code = location.strip_prefix("./#/login/").unwrap_or_else(|| panic!("{location}"));
    let opened = complete(gateway, code, &cookie(&reply), "");
    assert_eq!(opened.status, 200, "{}", opened.text());
    let body = opened.json();
    let token = body["csrf_token"].as_str().unwrap();
    (format!("Cookie: {}\r\nX-Yumen-Csrf: {token}\r\n", cookie(&opened)), body)
}

fn complete(gateway: &Gateway, code: &str, cookie: &str, more: &str) -> Reply {
    ask(gateway, "POST /ui/session", &format!("X-Yumen-Login: {code}\r\nCookie: {cookie}\r\n{more}"))
}

#[test]
fn users_of_the_provider_get_the_role_of_their_claims() {
    let idp = Idp::start();
    let gateway = gateway(&idp, "hush hush");
    assert_eq!(ask(&gateway, "GET /ui/logins", "").json()["openid"]["host"], "127.0.0.1");
    idp.set_claims(json!({"preferred_username": "ann", "groups": ["x", "gateway-admins"]}));
    let (fields, body) = log_in(&gateway, &idp);
    assert_eq!((&body["name"], &body["role"]), (&json!("openid/ann"), &json!("admin")));
    let call = &idp.calls("/token")[0];
    assert!(call["code_verifier"].len() >= 43 && call["authorization"].starts_with("Basic "), "{call:?}");
    let deleted = ask(&gateway, "DELETE /apisix/admin/routes/hello", &fields);
    assert_eq!(deleted.status, 200, "{}", deleted.text());
    let revisions = ask(&gateway, "GET /yumen/v1/revisions?limit=1", &fields).json();
    assert_eq!(revisions["revisions"][0]["author"], "openid/ann");
    assert_eq!(ask(&gateway, "DELETE /yumen/v1/session", &fields).status, 204);
    assert_eq!(ask(&gateway, "GET /apisix/admin/routes", &fields).status, 401);
    // Another role, by a claim within an object.
    idp.set_claims(json!({"realm": {"roles": ["staff"]}}));
    let (fields, body) = log_in(&gateway, &idp);
    assert_eq!((&body["name"], &body["role"]), (&json!("openid/alice"), &json!("viewer")));
    assert_eq!(ask(&gateway, "GET /apisix/admin/routes", &fields).status, 200);
    assert_eq!(ask(&gateway, "PUT /yumen/v1/keys/eve", &fields).status, 403);
    // No role.
    idp.set_claims(json!({"groups": ["others"]}));
    let (seed, path) = begin(&gateway, &idp);
    let (location, reply) = call_back(&gateway, &path, &seed);
    assert_eq!((location.as_str(), reply.field("set-cookie")), ("./#/login-no_role", None));
}

#[test]
fn public_client_and_cookies_of_a_login() {
    let idp = Idp::start();
    let gateway = gateway(&idp, "");
    let start = ask(&gateway, "GET /ui/login", "");
    let field = start.field("set-cookie").unwrap();
    assert!(field.contains("; HttpOnly") && field.contains("; SameSite=Lax"), "{field}");
    let location = start.field("location").unwrap();
    for part in
        ["response_type=code", "scope=openid%20profile%20email", "code_challenge_method=S256", "nonce="]
    {
        assert!(location.contains(part), "{location}");
    }
    idp.set_claims(json!({"groups": "gateway-admins"}));
    let (seed, path) = begin(&gateway, &idp);
    let (_, reply) = call_back(&gateway, &path, &seed);
    assert!(reply.field("set-cookie").unwrap().contains("; SameSite=Strict"));
    assert_eq!(reply.field("referrer-policy"), Some("no-referrer"));
    let call = &idp.calls("/token")[0];
    assert_eq!((call["client_id"].as_str(), call.get("authorization")), ("me", None));
}

#[test]
fn login_of_another_browser_opens_no_session() {
    let idp = Idp::start();
    let gateway = gateway(&idp, "hush");
    idp.set_claims(json!({"groups": ["gateway-admins"]}));
    let (seed, path) = begin(&gateway, &idp);
    let (other, _) = begin(&gateway, &idp);
    for (path, cookies) in [
        (path.clone(), "a=b".to_owned()),
        (path.clone(), other.clone()),
        (path.replace("state=", "state=0"), seed.clone()),
        (format!("{path}&state=0"), seed.clone()),
        (path.replace("iss=", "iss=http://evil.example/"), seed.clone()),
        ("/ui/callback".to_owned(), seed.clone()),
    ] {
        assert_eq!(call_back(&gateway, &path, &cookies).0, "./#/login-expired", "{path} {cookies}");
    }
    let denied = path.replace("code=", "error=access_denied&x=");
    assert_eq!(call_back(&gateway, &denied, &seed).0, "./#/login-refused");
    // The cookie of this login among others of the same name.
    let (location, reply) = call_back(&gateway, &path, &format!("{other}; {seed}"));
    let (code, own) = (location.strip_prefix("./#/login/").unwrap(), cookie(&reply));
    for more in ["Origin: http://evil.example\r\n", "Sec-Fetch-Site: same-site\r\n"] {
        assert_eq!(complete(&gateway, code, &own, more).status, 403, "{more}");
    }
    assert_eq!(complete(&gateway, code, &own, "").status, 200);
    // Once, and the code of the provider too.
    assert_eq!(complete(&gateway, code, &own, "").status, 401);
    assert_eq!(call_back(&gateway, &path, &seed).0, "./#/login-refused");
    // A code that was sent without its cookie has ended.
    let (seed, path) = begin(&gateway, &idp);
    let (location, reply) = call_back(&gateway, &path, &seed);
    let code = location.strip_prefix("./#/login/").unwrap();
    assert_eq!(complete(&gateway, code, &seed, "").status, 401);
    assert_eq!(complete(&gateway, code, &cookie(&reply), "").status, 401);
}

#[test]
fn key_opens_the_dashboard_while_the_provider_is_down() {
    let idp = Idp::start();
    let gateway = gateway(&idp, "hush");
    idp.set_broken("/.well-known/openid-configuration", true);
    let start = ask(&gateway, "GET /ui/login", "");
    assert_eq!((start.status, start.field("location")), (302, Some("./#/login-unavailable")));
    let session = ask(&gateway, "POST /yumen/v1/session", &format!("X-API-KEY: {ADMIN}\r\n"));
    assert_eq!(session.status, 200, "{}", session.text());
    idp.set_broken("/.well-known/openid-configuration", false);
    idp.set_claims(json!({"groups": ["gateway-admins"]}));
    eventually("the login begins", 20, || {
        ask(&gateway, "GET /ui/login", "").field("location").is_some_and(|one| one.starts_with("http"))
    });
    log_in(&gateway, &idp);
    // Without these settings there is no such login.
    let plain = launch("");
    assert_eq!(ask(&plain, "GET /ui/logins", "").json()["openid"], Value::Null);
    assert_eq!(ask(&plain, "GET /ui/login", "").status, 404);
    assert_eq!(ask(&plain, "GET /ui/callback?code=a&state=b", "").status, 404);
}

#[test]
fn provider_that_fails_is_asked_once_in_a_pause() {
    let idp = Idp::start();
    let gateway = gateway(&idp, "hush");
    idp.set_claims(json!({"groups": ["gateway-admins"]}));
    for status in [429, 503] {
        idp.set_failing("/token", Some(status));
        let ((seed, path), before) = (begin(&gateway, &idp), idp.calls("/token").len());
        let started = Instant::now();
        for _ in 0..30 {
            assert_eq!(call_back(&gateway, &path, &seed).0, "./#/login-unavailable", "{status}");
        }
        let asked = idp.calls("/token").len() - before;
        let pauses = started.elapsed().as_secs() as usize / 3;
        assert!((1..=1 + pauses).contains(&asked), "{status}: {asked}");
        idp.set_failing("/token", None);
        eventually("logins succeed again", 20, || {
            let (seed, path) = begin(&gateway, &idp);
            call_back(&gateway, &path, &seed).0.starts_with("./#/login/")
        });
    }
    // No failure of a client.
    assert_eq!((gateway.metric(FAILED), gateway.metric(LIMITED)), (0.0, 0.0));
}

#[test]
fn foreign_page_that_opens_the_callback_locks_no_operator_out() {
    let idp = Idp::start();
    let gateway = gateway(&idp, "hush");
    idp.set_claims(json!({"groups": ["gateway-admins"]}));
    let (seed, path) = begin(&gateway, &idp);
    let state = path.split("state=").nth(1).unwrap().split('&').next().unwrap();
    let foreign = path.replace(state, &"0".repeat(state.len()));
    assert_ne!(foreign, path);
    // The browser adds the cookie of the login in progress to the navigation that the page causes, if there is one.
    for cookies in ["a=b", &seed] {
        for target in [&*foreign, "/ui/callback?error=access_denied&state=0", "/ui/callback"] {
            for _ in 0..25 {
                assert_eq!(call_back(&gateway, target, cookies).0, "./#/login-expired", "{target} {cookies}");
            }
        }
    }
    let page = "Origin: http://evil.example\r\nSec-Fetch-Site: cross-site\r\n";
    for _ in 0..25 {
        assert_eq!(complete(&gateway, "00", &seed, page).status, 403);
    }
    assert_eq!((idp.calls("/token").len(), gateway.metric(LIMITED), gateway.metric(FAILED)), (0, 0.0, 0.0));
    // Neither the login in progress nor a key that this address uses for the first time has to wait.
    let (location, _) = call_back(&gateway, &path, &seed);
    assert!(location.starts_with("./#/login/"), "{location}");
    assert_eq!(ask(&gateway, "GET /apisix/admin/routes", &format!("X-API-KEY: {ADMIN}\r\n")).status, 200);
}

#[test]
fn address_that_fails_too_often_waits_and_its_sessions_and_used_keys_do_not() {
    let gateway = launch("");
    let with_key = |key: &str| ask(&gateway, "GET /apisix/admin/routes", &format!("X-API-KEY: {key}\r\n"));
    let session = ask(&gateway, "POST /yumen/v1/session", &format!("X-API-KEY: {ADMIN}\r\n"));
    let token = session.json()["csrf_token"].as_str().unwrap().to_owned();
    let page = format!("Cookie: {}\r\nX-Yumen-Csrf: {token}\r\n", cookie(&session));
    // Of a page of another site, which must not make the user of the browser wait.
    for _ in 0..25 {
        ask(&gateway, "GET /apisix/admin/routes?api_key=x", "Sec-Fetch-Site: cross-site\r\n");
    }
    let mut statuses = Vec::new();
    for at in 0..25 {
        statuses.push(with_key(&format!("wrong-{at}")).status);
    }
    assert_eq!(statuses[..19], [401; 19], "{statuses:?}");
    assert_eq!(statuses[24], 429, "{statuses:?}");
    let refused = with_key(VIEWER);
    let wait_s: u64 = refused.field("retry-after").unwrap().parse().unwrap();
    assert!(refused.status == 429 && (1..=60).contains(&wait_s), "{refused:?}");
    assert_eq!((with_key(ADMIN).status, ask(&gateway, "GET /apisix/admin/routes", &page).status), (200, 200));
    eventually("the key is accepted after the wait", 60, || with_key(VIEWER).status == 200);
    let count =
        |reason: &str| gateway.metric(&format!("yumen_admin_login_failures_total{{reason=\"{reason}\"}}"));
    assert!(count("key") >= 40.0 && count("limited") >= 2.0);
    let log = gateway.log();
    let lines = log.lines().filter(|line| line.contains("admin login failed")).count();
    assert!((1..=20).contains(&lines), "{lines} lines: {log}");
}

#[test]
fn key_in_a_cookie_opens_nothing_to_other_pages() {
    let gateway = launch("");
    let cookie = format!("Cookie: x_api_key={ADMIN}\r\n");
    let origin = format!("Origin: http://{}\r\n", gateway.admin);
    for (fields, status) in [
        ("", 200),
        (origin.as_str(), 200),
        ("Sec-Fetch-Site: same-origin\r\n", 200),
        ("Sec-Fetch-Site: none\r\n", 200),
        ("Sec-Fetch-Site: same-site\r\n", 403),
        ("Sec-Fetch-Site: cross-site\r\n", 403),
        ("Origin: http://evil.example\r\n", 403),
        ("Origin: null\r\n", 403),
    ] {
        let reply = ask(&gateway, "GET /apisix/admin/routes", &format!("{cookie}{fields}"));
        assert_eq!(reply.status, status, "{fields}: {}", reply.text());
    }
    let delete =
        ask(&gateway, "DELETE /apisix/admin/routes/hello", &format!("{cookie}Sec-Fetch-Site: none\r\n"));
    assert_eq!(delete.status, 403);
}
