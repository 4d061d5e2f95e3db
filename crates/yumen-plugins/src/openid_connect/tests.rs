//! The plugin against a provider in memory: its document and keys are fetched, its endpoints answer as the test says.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use yumen_config::resource::UpstreamSpec;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::proto::ProtoDescriptors;
use yumen_plugin::{
    FetchRequest, FetchSource, FetchedCell, Fields, ObjectLookup, Plugin, SubrequestFault,
    SubrequestResponse, SubrequestSpec, UpstreamSlot,
};

mod bearer_tokens;
mod stored_sessions;
mod warnings;

use super::login::{path_of, return_path, state_cookie};
use crate::jose::{ClientSigner, JwsAlgorithm};
use crate::testing::{PluginBench, TestReply};

const NOW_S: u64 = 1_700_000_000;
const ISSUER: &str = "https://idp.test";
const SECRET: &str = "0123456789abcdef";

/// A provider with one key.
struct MemoryProvider {
    signer: ClientSigner,
    document: Arc<FetchedCell>,
    keys: Arc<FetchedCell>,
    /// Paths of warnings.
    warned: Rc<RefCell<Vec<String>>>,
}

impl MemoryProvider {
    fn new(more: &Value) -> MemoryProvider {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let der = pair.to_pkcs8v1().unwrap();
        let pem = format!(
            "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----",
            STANDARD.encode(der.as_ref())
        );
        let signer = ClientSigner::of_pem(JwsAlgorithm::Es256, &pem, Some("k1".to_owned())).unwrap();
        let point = pair.public_key().as_ref();
        let (x, y) = point[1..].split_at(32);
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        let jwks = json!({"keys": [{"kty": "EC", "crv": "P-256", "kid": "k1", "x": x, "y": y}]});
        let mut document = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://idp.test/authorize",
            "token_endpoint": "https://idp.test/token",
            "introspection_endpoint": "https://idp.test/introspect",
            "end_session_endpoint": "https://idp.test/logout",
            "jwks_uri": "https://idp.test/jwks",
        });
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let (fetched, keys) = (FetchedCell::default(), FetchedCell::default());
        fetched.store((super::provider::DISCOVERY_FORMAT.parse)(document.to_string().as_bytes()).unwrap());
        keys.store((crate::jose::JWKS_FORMAT.parse)(jwks.to_string().as_bytes()).unwrap());
        MemoryProvider { signer, document: Arc::new(fetched), keys: Arc::new(keys), warned: Rc::default() }
    }

    /// A signed token; `changes` replace its claims, null removes one.
    fn token(&self, changes: &Value) -> String {
        let mut claims = json!({
            "iss": ISSUER, "sub": "alice", "aud": "me", "iat": NOW_S, "exp": NOW_S + 300, "scope": "read write",
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        self.signer.sign(&claims).unwrap()
    }

    fn objects(&self) -> Box<dyn ObjectLookup> {
        let (document, keys) = (self.document.clone(), self.keys.clone());
        Box::new(MemoryObjects { document, keys, warned: self.warned.clone() })
    }
}

struct MemoryObjects {
    document: Arc<FetchedCell>,
    keys: Arc<FetchedCell>,
    warned: Rc<RefCell<Vec<String>>>,
}

impl ObjectLookup for MemoryObjects {
    fn proto(&self, _: &str) -> Option<Arc<ProtoDescriptors>> {
        None
    }

    fn upstream(&self, _: &str) -> Option<UpstreamSlot> {
        None
    }

    fn inline_upstream(&self, _: &str, _: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings> {
        Ok(UpstreamSlot::known(7))
    }

    fn fetch(&self, request: FetchRequest) -> Arc<FetchedCell> {
        match &request.source {
            FetchSource::Http(http) if http.url.ends_with("/jwks") => self.keys.clone(),
            _ => self.document.clone(),
        }
    }

    fn warn(&self, path: &str, _: String, _: &str) {
        self.warned.borrow_mut().push(path.to_owned());
    }
}

fn answer(status: u16, body: &Value) -> Result<SubrequestResponse, SubrequestFault> {
    let body = Some(body.to_string().into_bytes());
    Ok(SubrequestResponse { status, fields: Fields::default(), body, ..SubrequestResponse::default() })
}

struct LoginBench {
    provider: MemoryProvider,
    bench: PluginBench,
    plugin: Arc<dyn Plugin>,
}

impl LoginBench {
    fn new(more: Value) -> LoginBench {
        LoginBench::at(&json!({}), more)
    }

    fn at(document: &Value, more: Value) -> LoginBench {
        let provider = MemoryProvider::new(document);
        let mut bench = PluginBench::new();
        bench.objects = Some(provider.objects());
        let plugin = bench.plugin("openid-connect", settings(more));
        LoginBench { provider, bench, plugin }
    }

    fn get(&self, target: &str, fields: &str) -> TestReply {
        let fields = if fields.is_empty() { String::new() } else { format!("\n{fields}") };
        self.bench.run(&self.plugin, &format!("GET {target} HTTP/1.1\nHost: shop.test{fields}"))
    }

    fn bearer(&self, token: &str) -> TestReply {
        self.get("/a", &format!("Authorization: Bearer {token}"))
    }

    fn answer(&mut self, status: u16, body: &Value) {
        self.bench.host.answer = Some(answer(status, body));
    }

    fn calls(&self) -> Vec<SubrequestSpec> {
        self.bench.host.subrequests.take()
    }

    /// Logs in from a page; returns the answer to the callback.
    fn log_in(&mut self, page: &str, id_claims: &Value) -> TestReply {
        let start = self.get(page, "");
        assert_eq!(start.status, 302, "{}", start.body);
        let location = start.field("Location").unwrap();
        let (state, nonce) = (query(&location, "state").unwrap(), query(&location, "nonce"));
        let mut claims = json!({ "nonce": nonce });
        claims.as_object_mut().unwrap().extend(id_claims.as_object().unwrap().clone());
        let id_token = self.provider.token(&claims);
        self.answer(
            200,
            &json!({
                "access_token": "at1", "refresh_token": "rt1", "id_token": id_token, "expires_in": 100,
            }),
        );
        let cookies = cookie_fields(&start);
        self.get(&format!("{page}/.apisix/redirect?code=c&state={state}"), &cookies)
    }
}

fn settings(more: Value) -> Value {
    let mut settings = json!({
        "client_id": "me", "client_secret": "hush", "discovery": "https://idp.test/.well-known/openid-configuration",
        "session": { "secret": SECRET },
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    settings
}

/// A parameter of a URL.
fn query(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(percent_encoding::percent_decode_str(value).decode_utf8_lossy().into_owned())
}

/// The cookies that a response sets, as fields of the next request.
fn cookie_fields(reply: &TestReply) -> String {
    let lines = reply.fields.iter().filter_map(|line| line.strip_prefix("Set-Cookie: "));
    let kept = lines.filter(|line| !line.contains("Max-Age=0"));
    kept.map(|line| format!("Cookie: {}", line.split(';').next().unwrap())).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_login_starts_with_a_redirect_and_ends_at_the_page() {
    let mut bench = LoginBench::new(json!({
        "use_pkce": true, "use_nonce": true, "scope": "openid email",
        "authorization_params": {"audience": "api", "state": "fixed", "redirect_uri": "https://evil.test"},
    }));
    let start = bench.get("/shop?a=b", "X-Userinfo: forged");
    assert_eq!((start.status, start.upstream.is_none()), (302, true));
    assert_eq!(start.field("Cache-Control").as_deref(), Some("no-cache, no-store, max-age=0"));
    let location = start.field("Location").unwrap();
    assert!(
        location.starts_with("https://idp.test/authorize?client_id=me&response_type=code&"),
        "{location}"
    );
    for (name, expected) in [
        ("scope", "openid email"),
        ("audience", "api"),
        ("redirect_uri", "http://shop.test/shop/.apisix/redirect"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(query(&location, name).as_deref(), Some(expected), "{location}");
    }
    let state = query(&location, "state").unwrap();
    assert_eq!(state.len(), 32);
    let cookie = start.field("Set-Cookie").unwrap();
    let name = state_cookie("session", &state).unwrap();
    assert!(cookie.starts_with(&format!("{name}=")), "{cookie}");
    assert!(cookie.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax"), "{cookie}");

    let end = bench.log_in("/shop", &json!({}));
    assert_eq!((end.status, end.field("Location").as_deref()), (302, Some("/shop")), "{}", end.body);
    let calls = bench.calls();
    let body = String::from_utf8(calls[0].body.clone()).unwrap();
    assert!(
        body.starts_with("grant_type=authorization_code&code=c&redirect_uri=http%3A%2F%2Fshop.test"),
        "{body}"
    );
    assert!(body.contains("&code_verifier="), "{body}");
    assert!(!calls[0].may_repeat);

    let reply = bench.get("/shop", &format!("{}\nX-ID-Token: forged", cookie_fields(&end)));
    assert_eq!(reply.upstream_field("X-Access-Token").as_deref(), Some("at1"));
    let claims = STANDARD.decode(reply.upstream_field("X-ID-Token").unwrap()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&claims).unwrap()["sub"], "alice");
}

#[test]
fn scripts_do_not_end_the_login_of_a_page() {
    let bench = LoginBench::new(json!({}));
    let page = cookie_fields(&bench.get("/shop", "Sec-Fetch-Mode: navigate"));
    let name = page.strip_prefix("Cookie: ").and_then(|line| line.split('=').next()).unwrap();
    // Scripts at once do not see the cookies of each other.
    let script = "Sec-Fetch-Mode: cors";
    let scripts = (0..5).map(|_| cookie_fields(&bench.get("/poll", script))).collect::<Vec<_>>().join("\n");
    let reply = bench.get("/poll", &format!("{script}\n{page}\n{scripts}"));
    let removals: Vec<&String> = reply.fields.iter().filter(|line| line.contains("Max-Age=0")).collect();
    assert_eq!(removals.len(), 2, "{removals:?}");
    assert!(removals.iter().all(|line| !line.contains(name)), "{name}: {removals:?}");
}

#[test]
fn an_id_token_that_does_not_fit_ends_the_login() {
    for (claims, reason) in [
        (json!({"iss": "https://other.test"}), "the issuer of the ID token is another one"),
        (json!({"sub": null}), "the ID token has no subject"),
        (json!({"aud": "you"}), "the ID token is for another client"),
        (json!({"aud": ["me", "you"], "azp": "you"}), "the ID token was issued to another client"),
        (json!({"aud": ["me", "you"], "azp": ["you"]}), "the ID token was issued to another client"),
        (json!({"azp": {}}), "the ID token was issued to another client"),
        (json!({"exp": NOW_S - 121}), "the token has expired"),
        (json!({"exp": null}), "the ID token has no end"),
        (json!({"iat": NOW_S + 121}), "the token was issued in the future: check the clocks"),
        (json!({"nonce": "another"}), "the nonce of the ID token is another one"),
        (json!({"at_hash": "bm90IHRoaXMgb25l"}), "the access token was not issued with the ID token"),
    ] {
        let mut bench = LoginBench::new(json!({"use_nonce": true}));
        let end = bench.log_in("/shop", &claims);
        assert_eq!((end.status, end.body), (500, format!("{{\"message\":\"{reason}\"}}\n")), "{claims}");
        assert!(!end.fields.iter().any(|line| line.starts_with("Set-Cookie: session=")), "{claims}");
    }
}

#[test]
fn a_response_of_the_provider_needs_the_login_of_this_browser() {
    let mut bench =
        LoginBench::at(&json!({"authorization_response_iss_parameter_supported": true}), json!({}));
    let start = bench.get("/shop", "");
    let state = query(&start.field("Location").unwrap(), "state").unwrap();
    let cookies = cookie_fields(&start);
    bench.answer(200, &json!({"access_token": "a", "id_token": bench.provider.token(&json!({}))}));
    let lost = "request to the redirect_uri path but there's no session state found";
    let other = format!("{}{}", &state[..8], "0".repeat(24));
    let tampered = cookies.replacen("=", "=A", 1);
    for (query, cookies, message) in [
        // State fixation: the attacker's state in the victim's browser.
        (format!("code=c&state={state}&iss={ISSUER}"), "", lost),
        (format!("code=c&state={state}&iss={ISSUER}"), tampered.as_str(), lost),
        (
            format!("code=c&state={other}&iss={ISSUER}"),
            &cookies,
            "state from argument does not match the one of the login",
        ),
        ("code=c".to_owned(), &cookies, lost),
        ("code=c&state=../../x".to_owned(), &cookies, lost),
        // Mixed-up providers (RFC 9207).
        (format!("code=c&state={state}"), &cookies, "the response names no issuer"),
        (
            format!("code=c&state={state}&iss=https://evil.test"),
            &cookies,
            "iss from argument is another issuer",
        ),
        (
            format!("code=c&state={state}&iss={ISSUER}&client_id=you"),
            &cookies,
            "client_id from argument is another client",
        ),
        (format!("state={state}&iss={ISSUER}"), &cookies, "the response has no code"),
        (
            format!("error=access_denied&error_description=%3Cb%3E&state={state}&iss={ISSUER}"),
            &cookies,
            "the identity provider refused the login: access_denied",
        ),
    ] {
        let reply = bench.get(&format!("/shop/.apisix/redirect?{query}"), cookies);
        assert_eq!((reply.status, reply.body), (500, format!("{{\"message\":\"{message}\"}}\n")), "{query}");
    }
    assert!(bench.calls().is_empty(), "no code was sent");
    let twice =
        bench.get(&format!("/shop/.apisix/redirect?code=c&code=d&state={state}&iss={ISSUER}"), &cookies);
    assert_eq!(twice.status, 400);
    let fine = bench.get(&format!("/shop/.apisix/redirect?code=c&state={state}&iss={ISSUER}"), &cookies);
    assert_eq!(fine.status, 302);
}

#[test]
fn a_temporary_error_restarts_the_login_three_times() {
    let bench = LoginBench::new(json!({}));
    let mut reply = bench.get("/shop?a=b", "");
    for attempt in 0..4 {
        let state = query(&reply.field("Location").unwrap(), "state").unwrap();
        let cookies = cookie_fields(&reply);
        reply = bench
            .get(&format!("/shop/.apisix/redirect?error=temporarily_unavailable&state={state}"), &cookies);
        assert_eq!(reply.status, if attempt < 3 { 302 } else { 500 }, "{attempt}");
    }
}

#[test]
fn logins_that_leave_no_session_cookie_end_after_three() {
    let mut bench = LoginBench::new(json!({}));
    let mut kept = String::new();
    for attempt in 0..4 {
        let start = bench.get("/shop", &kept);
        if attempt == 3 {
            assert_eq!(start.status, 500);
            assert!(start.body.contains("without a session that lasts"), "{}", start.body);
            return;
        }
        let state = query(&start.field("Location").unwrap(), "state").unwrap();
        bench.answer(200, &json!({"access_token": "a", "id_token": bench.provider.token(&json!({}))}));
        let cookies = [cookie_fields(&start), kept.clone()].join("\n");
        let end = bench.get(&format!("/shop/.apisix/redirect?code=c&state={state}"), cookies.trim());
        assert_eq!(end.status, 302, "{}", end.body);
        // The browser drops the session cookie.
        kept = cookie_fields(&end).lines().filter(|line| line.contains("session_logins=")).collect();
    }
}

#[test]
fn a_session_of_another_client_or_secret_is_none() {
    let mut bench = LoginBench::new(json!({}));
    let cookies = cookie_fields(&bench.log_in("/shop", &json!({})));
    assert_eq!(bench.get("/a", &cookies).status, 200);
    for more in [json!({"client_id": "you"}), json!({"session": {"secret": "another secret of 16"}})] {
        let other = LoginBench::new(more.clone());
        assert_eq!(other.get("/a", &cookies).status, 302, "{more}");
    }
    // The same secret at another provider.
    let other = LoginBench::at(&json!({"issuer": "https://other.test"}), json!({}));
    assert_eq!(other.get("/a", &cookies).status, 302);
    // The same node settings elsewhere: another node accepts the session.
    let node = LoginBench::new(json!({}));
    assert_eq!(node.get("/a", &cookies).status, 200);
    let rotated =
        LoginBench::new(json!({"session": {"secret": "another secret of 16", "secret_fallbacks": [SECRET]}}));
    let reply = rotated.get("/a", &cookies);
    assert_eq!(reply.status, 200);
    assert!(reply.field("Set-Cookie").is_some_and(|line| line.starts_with("session=1.")));
    assert_eq!(reply.field("Cache-Control").as_deref(), Some("private, no-store"));
}

#[test]
fn an_expired_access_token_is_renewed() {
    let mut bench = LoginBench::new(json!({"set_refresh_token_header": true}));
    let cookies = cookie_fields(&bench.log_in("/shop", &json!({})));
    bench.calls();
    // `expires_in` is 100, of which one second is left for the way.
    for (seconds, calls) in [(98, 0), (1, 1)] {
        bench.bench.host.advance(std::time::Duration::from_secs(seconds));
        bench.answer(200, &json!({"access_token": "at2", "refresh_token": "rt2", "expires_in": 100}));
        let reply = bench.get("/shop", &cookies);
        let sent = bench.calls();
        assert_eq!(sent.len(), calls, "after {seconds}");
        // A scope that was not granted would refuse the renewal.
        assert!(sent.iter().all(|call| call.body.ends_with(b"refresh_token=rt1")), "{sent:?}");
        let token = if calls == 0 { ("at1", "rt1") } else { ("at2", "rt2") };
        assert_eq!(reply.upstream_field("X-Access-Token").as_deref(), Some(token.0));
        assert_eq!(reply.upstream_field("X-Refresh-Token").as_deref(), Some(token.1));
    }
    // Another tab with the old cookie uses the same result.
    let reply = bench.get("/shop", &cookies);
    assert_eq!((reply.upstream_field("X-Access-Token").as_deref(), bench.calls().len()), (Some("at2"), 0));
}

#[test]
fn a_kept_renewal_is_used_until_its_access_token_ends() {
    // A provider that replaces refresh tokens, and one that does not.
    for (refresh_token, sent) in [(json!("rt2"), "refresh_token=rt2"), (json!(null), "refresh_token=rt1")] {
        let mut bench = LoginBench::new(json!({}));
        let cookies = cookie_fields(&bench.log_in("/shop", &json!({})));
        bench.bench.host.advance(std::time::Duration::from_secs(100));
        bench.answer(200, &json!({"access_token": "at2", "refresh_token": refresh_token, "expires_in": 5}));
        assert_eq!(bench.get("/shop", &cookies).status, 200);
        bench.calls();
        // A tab that still has the old cookie gets the session with the end of its token, not of the request.
        bench.bench.host.advance(std::time::Duration::from_secs(3));
        let late = bench.get("/shop", &cookies);
        assert_eq!((late.upstream_field("X-Access-Token").as_deref(), bench.calls().len()), (Some("at2"), 0));
        bench.bench.host.advance(std::time::Duration::from_secs(2));
        bench.answer(200, &json!({"access_token": "at3", "refresh_token": "rt3", "expires_in": 5}));
        for cookies in [cookie_fields(&late), cookies] {
            let reply = bench.get("/shop", &cookies);
            assert_eq!(reply.upstream_field("X-Access-Token").as_deref(), Some("at3"));
        }
        let calls = bench.calls();
        assert_eq!(calls.len(), 1, "{calls:?}");
        assert!(String::from_utf8_lossy(&calls[0].body).contains(sent), "{calls:?}");
    }
}

#[test]
fn a_refused_renewal_logs_in_and_an_absent_provider_is_named() {
    for (result, expected) in [
        (answer(400, &json!({"error": "invalid_grant"})), 302),
        (answer(500, &json!({})), 503),
        (Err(SubrequestFault::ConnectionLost), 503),
        // A token of another user.
        (
            answer(
                200,
                &json!({"access_token": "x", "id_token": MemoryProvider::new(&json!({})).token(&json!({}))}),
            ),
            302,
        ),
    ] {
        let mut bench = LoginBench::new(json!({}));
        let cookies = cookie_fields(&bench.log_in("/shop", &json!({})));
        bench.bench.host.advance(std::time::Duration::from_secs(100));
        bench.bench.host.answer = Some(result.clone());
        assert_eq!(bench.get("/shop", &cookies).status, expected, "{result:?}");
    }
}

#[test]
fn a_logout_ends_the_session_here_and_at_the_provider() {
    let mut bench = LoginBench::new(json!({"post_logout_redirect_uri": "/bye"}));
    let cookies = cookie_fields(&bench.log_in("/shop", &json!({})));
    let reply = bench.get("/logout", &cookies);
    let location = reply.field("Location").unwrap();
    assert!(location.starts_with("https://idp.test/logout?id_token_hint="), "{location}");
    assert_eq!(query(&location, "post_logout_redirect_uri").as_deref(), Some("http://shop.test/bye"));
    assert!(reply.field("Set-Cookie").unwrap().contains("session=; Path=/; Max-Age=0"));
    let bare = LoginBench::at(&json!({"end_session_endpoint": null}), json!({}));
    let reply = bare.get("/logout", "");
    assert_eq!((reply.status, reply.body.as_str()), (200, "<html><body>Logged Out</body></html>"));
}

#[test]
fn a_request_without_a_session_is_answered_as_configured() {
    for (more, fields, expected) in [
        (json!({"unauth_action": "deny"}), "", 401),
        (json!({"unauth_action": "pass"}), "X-Userinfo: forged", 200),
        (json!({"unauth_xhr": "401"}), "Sec-Fetch-Mode: cors", 401),
        (json!({"unauth_xhr": "401"}), "Accept: application/json", 401),
        (json!({"unauth_xhr": "401"}), "Accept: text/html,*/*", 302),
        (json!({}), "Sec-Fetch-Mode: cors", 302),
    ] {
        let reply = LoginBench::new(more.clone()).get("/a", fields);
        assert_eq!(reply.status, expected, "{more} {fields}");
        if expected == 200 {
            assert_eq!(reply.upstream_field("X-Userinfo"), None);
        }
    }
    let more = json!({"unauth_action": "pass", "access_token_in_authorization_header": true});
    let reply = LoginBench::new(more).get("/a", "Authorization: Bearer forged");
    assert_eq!((reply.status, reply.upstream_field("Authorization")), (200, None));
}

#[test]
fn nothing_passes_before_the_discovery_document_arrives() {
    for (more, expected) in [
        (json!({}), 503),
        (json!({"unauth_action": "pass"}), 503),
        (json!({"bearer_only": true, "use_jwks": true}), 401),
    ] {
        let mut bench = PluginBench::new();
        let empty = MemoryObjects { document: Arc::default(), keys: Arc::default(), warned: Rc::default() };
        bench.objects = Some(Box::new(empty));
        let plugin = bench.plugin("openid-connect", settings(more.clone()));
        let token = MemoryProvider::new(&json!({})).token(&json!({}));
        let reply = bench.run(&plugin, &format!("GET /a HTTP/1.1\nHost: a\nAuthorization: Bearer {token}"));
        assert_eq!(reply.status, expected, "{more}");
    }
}

#[test]
fn a_redirect_leads_to_a_path_of_this_host_only() {
    for (target, expected) in [
        ("/a?b=c", "/a?b=c"),
        ("//evil.test/a", "/"),
        ("/\\evil.test", "/"),
        ("https://evil.test", "/"),
        ("", "/"),
        ("/a\r\nSet-Cookie: b", "/"),
        ("/\t/evil.test", "/"),
    ] {
        assert_eq!(return_path(target.as_bytes()), expected, "{target:?}");
    }
    let long = format!("/a?{}", "b".repeat(3000));
    assert_eq!(return_path(long.as_bytes()), "/a");
    for (url, expected) in [("https://a.test/b?c", "/b"), ("https://a.test", "/"), ("/b#c", "/b")] {
        assert_eq!(path_of(url), expected);
    }
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let bench = PluginBench::new();
    for (more, message) in [
        (json!({"session": null}), "property \"session.secret\" is required when \"bearer_only\" is false"),
        (json!({"client_secret": null}), "property \"client_secret\" is required"),
        (json!({"token_endpoint_auth_method": "mtls"}), "unknown method \"mtls\""),
        (
            json!({"token_endpoint_auth_method": "private_key_jwt"}),
            "property \"client_rsa_private_key\" is required",
        ),
        (
            json!({"token_endpoint_auth_method": "client_secret_jwt", "client_jwt_assertion_alg": "RS256"}),
            "does not fit the authentication method client_secret_jwt",
        ),
        (json!({"use_par": true}), "write \"par.enabled\" instead"),
        (json!({"dpop_private_key": "x"}), "write \"dpop.private_key\" instead"),
        (
            json!({"dpop": {"enabled": true, "private_key": "a", "public_jwk": {}}}),
            "proof of possession is not supported",
        ),
        (json!({"public_key": "x"}), "not a public key in PEM"),
        (json!({"redirect_uri": "javascript:alert(1)"}), "not an http or https URL"),
        (json!({"post_logout_redirect_uri": "//evil.test"}), "not an http or https URL"),
        (json!({"discovery": "idp"}), "not an http or https URL"),
        (json!({"session": {"secret": "short"}}), "secret"),
        (json!({"session": {"secret": SECRET, "storage": "redis"}}), "then clause did not match"),
        (json!({"session": {"secret": SECRET, "cookie_name": "a;b"}}), "no cookie name"),
        (json!({"token_signing_alg_values_expected": "none"}), "unknown signature algorithm"),
        (json!({"backchannel_logout_path": "/a"}), "set session.storage to redis"),
        (json!({"backchannel_logout_path": "a"}), "not a path"),
    ] {
        let refused = bench.build("openid-connect", settings(more.clone())).err();
        let found = refused.map(|refused| refused.message).unwrap_or_default();
        assert!(found.contains(message), "{more}: {found:?}");
    }
    for more in [
        json!({"client_secret": null, "use_pkce": true}),
        json!({"client_secret": null, "session": null, "bearer_only": true, "use_jwks": true}),
        json!({"session_contents": {"user": true}, "timeout": 3000}),
    ] {
        assert!(bench.build("openid-connect", settings(more.clone())).is_ok(), "{more}");
    }
}
