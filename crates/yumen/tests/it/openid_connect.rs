//! Bearer tokens and logins at an identity provider, and attacks on both.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::idp::{Browser, Idp, parameters};
use crate::harness::redis::Redis;
use crate::harness::{Gateway, Upstream, eventually, run};

const SECRET: &str = "a secret of all nodes";

fn settings(idp: &Idp, more: &Value) -> Value {
    let mut settings = json!({
        "client_id": "me", "client_secret": "hush", "discovery": idp.discovery(), "session": { "secret": SECRET },
    });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    settings
}

/// A gateway whose route has the plugin, when it knows the provider.
fn gateway(idp: &Idp, upstream: &Upstream, more: &Value) -> Gateway {
    let plugins = json!({ "openid-connect": settings(idp, more) });
    with_plugins(upstream, &plugins)
}

fn with_plugins(upstream: &Upstream, plugins: &Value) -> Gateway {
    let route = json!({ "id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
    let gateway = Gateway::start(&json!({ "routes": [route] }));
    eventually("the provider is discovered", 10, || gateway.get("/").status != 503);
    gateway
}

fn bearer(gateway: &Gateway, token: &str) -> u16 {
    gateway.get_with("/a", &format!("Authorization: Bearer {token}\r\n")).status
}

/// The claims in a field of the request that the upstream has seen.
fn claims(seen: &Value, name: &str) -> Value {
    let text = seen["fields"][name].as_str().unwrap_or_else(|| panic!("no {name} in {seen}"));
    serde_json::from_slice(&STANDARD.decode(text).unwrap()).unwrap()
}

#[test]
fn bearer_tokens_are_verified_by_keys_that_rotate() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let gateway = gateway(&idp, &upstream, &json!({"bearer_only": true, "use_jwks": true}));
    let token = idp.token(&json!({}));
    eventually("the keys are fetched", 10, || bearer(&gateway, &token) == 200);
    let fields = format!("Authorization: Bearer {token}\r\nX-Userinfo: forged\r\nX_ID_Token: forged\r\n");
    let seen = gateway.get_with("/a", &fields).json();
    assert_eq!(claims(&seen, "x-userinfo")["sub"], "alice");
    assert_eq!(seen["fields"]["x-access-token"], token.as_str());
    assert_eq!(seen["fields"]["x_id_token"], Value::Null);
    let refused = gateway.get("/a");
    assert_eq!((refused.status, refused.field("www-authenticate")), (401, Some("Bearer realm=\"apisix\"")));
    // A provider of the same issuer with other keys.
    let forger = Idp::start();
    let forged = forger.token(&json!({"iss": idp.issuer()}));
    for forged in [forged.as_str(), &token[..token.len() - 2], "a.b.c", "eyJhbGciOiJub25lIn0.e30."] {
        assert_eq!(bearer(&gateway, forged), 401, "{forged}");
    }
    // The new key is unknown: the request waits for it. Unknown keys cause one fetch in ten seconds.
    let fetches = idp.calls("/jwks").len();
    idp.rotate(false);
    let rotated = idp.token(&json!({}));
    eventually("the new key is fetched", 15, || bearer(&gateway, &rotated) == 200);
    assert!(idp.calls("/jwks").len() <= fetches + 2);
    // The former key is published no more, so its tokens end.
    assert_eq!(bearer(&gateway, &token), 401);
}

#[test]
fn bearer_tokens_are_introspected_until_they_end() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let more = json!({"bearer_only": true, "introspection_endpoint": format!("{}/introspect", idp.issuer())});
    let gateway = gateway(&idp, &upstream, &more);
    idp.set_introspection("good", json!({"active": true, "sub": "alice", "exp": 4_000_000_000_u64}));
    assert_eq!((bearer(&gateway, "good"), bearer(&gateway, "bad")), (200, 401));
    // Failures of the provider admit nobody; known results stay.
    idp.set_broken("/introspect", true);
    assert_eq!(bearer(&gateway, "other"), 401);
    let call = &idp.calls("/introspect")[0];
    assert_eq!(call["authorization"], format!("Basic {}", STANDARD.encode("me:hush")));
}

#[test]
fn a_user_logs_in_and_returns_to_the_page() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let more = json!({"use_pkce": true, "use_nonce": true, "set_raw_id_token_header": true});
    let gateway = gateway(&idp, &upstream, &more);
    idp.set_claims(json!({"name": "Alice"}));
    let mut browser = Browser::default();
    let seen = browser.log_in(&gateway, &idp, "/shop?a=b&c=%2F").json();
    assert_eq!(seen["target"], "/shop?a=b&c=%2F");
    assert_eq!(claims(&seen, "x-userinfo")["name"], "Alice");
    assert_eq!(claims(&seen, "x-id-token")["sub"], "alice");
    assert!(seen["fields"]["x-raw-id-token"].is_string());
    assert_eq!(idp.calls("/token").len(), 1);
    // Further requests ask the provider for nothing.
    assert_eq!(browser.get(&gateway, "/a").status, 200);
    assert_eq!(idp.calls("/token").len(), 1);
    // Every other byte of the cookie: a changed session is none.
    let session = browser.cookies["session"].clone();
    for at in (0..session.len()).step_by(37) {
        let mut bytes = session.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        browser.cookies.insert("session".to_owned(), String::from_utf8(bytes).unwrap());
        assert_eq!(browser.get(&gateway, "/a").status, 302, "byte {at}");
    }
}

#[test]
fn five_tabs_log_in_at_once_and_return_to_their_pages() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let gateway = gateway(&idp, &upstream, &json!({"use_nonce": true}));
    let mut browser = Browser::default();
    let starts: Vec<String> = (0..5)
        .map(|tab| browser.get(&gateway, &format!("/tab{tab}")).field("location").unwrap().to_owned())
        .collect();
    for (tab, start) in starts.iter().enumerate().rev() {
        let end = browser.get(&gateway, &idp.log_in(start));
        assert_eq!((end.status, end.field("location")), (302, Some(format!("/tab{tab}").as_str())));
        assert_eq!(browser.get(&gateway, "/a").status, 200);
    }
    assert_eq!(browser.cookies.keys().filter(|name| name.starts_with("session_login_")).count(), 0);
    // Abandoned logins do not pile up.
    let mut lost = Browser::default();
    for _ in 0..9 {
        lost.get(&gateway, "/tab");
    }
    assert_eq!(lost.cookies.len(), 5);
}

#[test]
fn logins_are_bound_to_browser_and_provider() {
    let (idp, other, upstream) = (Idp::start(), Idp::start(), Upstream::echo("a"));
    let gateway = gateway(&idp, &upstream, &json!({}));
    let (mut victim, mut attacker) = (Browser::default(), Browser::default());
    // State fixation: the attacker's response in the victim's browser.
    let start = attacker.get(&gateway, "/a").field("location").unwrap().to_owned();
    let back = idp.log_in(&start);
    assert_eq!(victim.get(&gateway, &back).status, 500);
    assert!(victim.cookies.is_empty());
    // A code of the attacker with the state of the victim: the provider binds it to the redirect URI only, so the
    // nonce and PKCE are what ends it; without them the issuer still must fit.
    let mine = victim.get(&gateway, "/a").field("location").unwrap().to_owned();
    let state = &parameters(&mine)["state"];
    for query in [
        format!("code=c&state={state}&iss={}", other.issuer()),
        format!("code=c&state={state}"),
        format!("code=stolen&state={state}&iss={}", idp.issuer()),
    ] {
        let reply = victim.get(&gateway, &format!("/a/.apisix/redirect?{query}"));
        assert_eq!(reply.status, 500, "{query}");
        assert!(!victim.cookies.contains_key("session"), "{query}");
    }
    // A page of another host is never the target.
    for page in ["//evil.test/a", "/\\evil.test", "/%2F/evil.test", "https://evil.test/"] {
        let mut browser = Browser::default();
        let request = format!("GET {page} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        let start = gateway.send(request);
        let Some(location) = start.field("location").map(str::to_owned) else { continue };
        for line in start.head.lines().filter_map(|line| line.strip_prefix("Set-Cookie: ")) {
            let (name, value) = line.split(';').next().unwrap().split_once('=').unwrap();
            browser.cookies.insert(name.to_owned(), value.to_owned());
        }
        let end = browser.get(&gateway, &idp.log_in(&location));
        let target = end.field("location").unwrap_or("/");
        assert!(
            target.starts_with('/') && !target.starts_with("//") && !target.starts_with("/\\"),
            "{page}: {target}"
        );
    }
}

#[test]
fn pkce_and_nonce_end_injected_codes() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    for more in [json!({"use_pkce": true}), json!({"use_nonce": true})] {
        let gateway = gateway(&idp, &upstream, &more);
        let (mut victim, mut attacker) = (Browser::default(), Browser::default());
        let stolen = attacker.get(&gateway, "/a").field("location").unwrap().to_owned();
        let code = parameters(idp.log_in(&stolen).split_once('?').unwrap().1)["code"].clone();
        let mine = victim.get(&gateway, "/a").field("location").unwrap().to_owned();
        let state = &parameters(&mine)["state"];
        let back = format!("/a/.apisix/redirect?code={code}&state={state}&iss={}", idp.issuer());
        assert_eq!(victim.get(&gateway, &back).status, 500, "{more}");
        assert!(!victim.cookies.contains_key("session"), "{more}");
    }
}

#[test]
fn nodes_share_sessions_by_their_secret() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let nodes = [(); 2].map(|()| gateway(&idp, &upstream, &json!({"use_pkce": true})));
    let mut browser = Browser::default();
    // The login starts at one node and ends at the other one.
    let start = browser.get(&nodes[0], "/a").field("location").unwrap().to_owned();
    assert_eq!(browser.get(&nodes[1], &idp.log_in(&start)).status, 302);
    for node in &nodes {
        assert_eq!(browser.get(node, "/a").status, 200);
    }
}

#[test]
fn a_large_session_is_split_over_cookies() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let gateway = gateway(&idp, &upstream, &json!({"set_userinfo_header": true}));
    // Random digits, which deflate halves at best.
    let groups: String = crate::harness::noise(5_000).iter().map(|byte| format!("{byte:02x}")).collect();
    idp.set_claims(json!({"groups": groups}));
    let mut browser = Browser::default();
    let start = browser.get(&gateway, "/a").field("location").unwrap().to_owned();
    assert_eq!(browser.get(&gateway, &idp.log_in(&start)).status, 302);
    assert!(browser.cookies.contains_key("session_3"), "{:?}", browser.cookies.keys());
    assert_eq!(browser.get(&gateway, "/a").status, 200);
    // A smaller session removes the cookies beyond it.
    idp.set_claims(json!({}));
    let part = browser.cookies.remove("session_2").unwrap();
    let start = browser.get(&gateway, "/a");
    assert_eq!(start.status, 302, "a session with a missing part is none");
    browser.cookies.insert("session_2".to_owned(), part);
    assert_eq!(browser.get(&gateway, &idp.log_in(start.field("location").unwrap())).status, 302);
    let names: Vec<&String> = browser.cookies.keys().filter(|name| !name.contains("login")).collect();
    assert_eq!(names, ["session"]);
}

#[test]
fn concurrent_requests_share_one_refresh() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let gateway = gateway(&idp, &upstream, &json!({}));
    // Expired at once: each page renews.
    idp.set_lifetime(1);
    let mut browser = Browser::default();
    let start = browser.get(&gateway, "/a").field("location").unwrap().to_owned();
    assert_eq!(browser.get(&gateway, &idp.log_in(&start)).status, 302);
    idp.set_lifetime(300);
    std::thread::scope(|scope| {
        for _ in 0..10 {
            let mut tab = browser.clone();
            let gateway = &gateway;
            scope.spawn(move || assert_eq!(tab.get(gateway, "/a").status, 200));
        }
    });
    let refreshes = idp.calls("/token").into_iter().filter(|call| call["grant_type"] == "refresh_token");
    assert_eq!(refreshes.count(), 1);
    assert_eq!(browser.get(&gateway, "/a").status, 200);
}

#[test]
fn an_absent_provider_is_named_and_admits_nobody() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let gateway = gateway(&idp, &upstream, &json!({}));
    idp.set_lifetime(1);
    let mut browser = Browser::default();
    let start = browser.get(&gateway, "/a").field("location").unwrap().to_owned();
    let back = idp.log_in(&start);
    idp.set_broken("/token", true);
    let reply = browser.clone().get(&gateway, &back);
    assert_eq!((reply.status, reply.json()["message"].as_str().is_some()), (503, true));
    idp.set_broken("/token", false);
    assert_eq!(browser.get(&gateway, &back).status, 302);
    idp.set_broken("/token", true);
    assert_eq!(browser.get(&gateway, "/a").status, 503);
    assert_eq!(upstream.requests(), 0);
    // A gateway that starts without its provider.
    let away = Idp::start();
    away.set_broken("/.well-known/openid-configuration", true);
    let route = |more: Value| {
        let plugins = json!({ "openid-connect": settings(&away, &more) });
        json!({ "routes": [{ "id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() }] })
    };
    let late = Gateway::start(&route(json!({"unauth_action": "pass"})));
    assert_eq!(late.get("/").status, 503);
    away.set_broken("/.well-known/openid-configuration", false);
    eventually("the provider is discovered later", 20, || late.get("/").status == 200);
}

#[test]
fn a_logout_ends_the_session_everywhere() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let more = json!({"revoke_tokens_on_logout": true, "post_logout_redirect_uri": "https://shop.test/bye"});
    let gateway = gateway(&idp, &upstream, &more);
    let mut browser = Browser::default();
    assert_eq!(browser.log_in(&gateway, &idp, "/a").status, 200);
    let reply = browser.get(&gateway, "/logout");
    let location = reply.field("location").unwrap();
    assert!(location.starts_with(&format!("{}/end?id_token_hint=ey", idp.issuer())), "{location}");
    assert_eq!(parameters(location)["post_logout_redirect_uri"], "https://shop.test/bye");
    let hints: Vec<String> =
        idp.calls("/revoke").iter().map(|call| call["token_type_hint"].clone()).collect();
    assert_eq!(hints, ["refresh_token", "access_token"]);
    assert_eq!(browser.get(&gateway, "/a").status, 302);
}

/// Settings of sessions in this Redis.
fn sessions_in(redis: &Redis) -> Value {
    let redis = json!({"host": "127.0.0.1", "port": redis.port, "read_timeout": 20_000});
    json!({"session": {"secret": SECRET, "storage": "redis", "redis": redis}})
}

#[test]
fn nodes_share_one_refresh_of_a_session_in_redis() {
    let (idp, redis, upstream) = (Idp::start(), Redis::start(), Upstream::echo("a"));
    let nodes = [(); 2].map(|()| gateway(&idp, &upstream, &sessions_in(&redis)));
    // Expired at once: each page renews.
    idp.set_lifetime(1);
    let mut browser = Browser::default();
    let start = browser.get(&nodes[0], "/a").field("location").unwrap().to_owned();
    assert_eq!(browser.get(&nodes[1], &idp.log_in(&start)).status, 302);
    idp.set_lifetime(300);
    std::thread::scope(|scope| {
        for node in nodes.iter().cycle().take(10) {
            let mut tab = browser.clone();
            scope.spawn(move || assert_eq!(tab.get(node, "/a").status, 200));
        }
    });
    let refreshes = idp.calls("/token").into_iter().filter(|call| call["grant_type"] == "refresh_token");
    assert_eq!(refreshes.count(), 1);
    eventually("the lock is released", 10, || !redis.cli(&["KEYS", "*"]).contains(":renewal"));
}

#[test]
fn one_refresh_is_sent_after_a_lock_without_owner_and_a_pause_of_redis() {
    let (idp, redis, upstream) = (Idp::start(), Redis::start(), Upstream::echo("a"));
    let nodes = [(); 2].map(|()| gateway(&idp, &upstream, &sessions_in(&redis)));
    let refreshes =
        || idp.calls("/token").iter().filter(|call| call["grant_type"] == "refresh_token").count();
    // The node that held the lock has died; Redis does not answer for a while.
    for (at, has_dead_owner) in [true, false].into_iter().enumerate() {
        redis.cli(&["FLUSHALL"]);
        // Expired at once: each page renews.
        idp.set_lifetime(1);
        let mut browser = Browser::default();
        let start = browser.get(&nodes[0], "/a").field("location").unwrap().to_owned();
        assert_eq!(browser.get(&nodes[1], &idp.log_in(&start)).status, 302);
        idp.set_lifetime(300);
        if has_dead_owner {
            let lock = format!("{}:renewal", redis.cli(&["KEYS", "sessions:*"]).trim());
            assert_eq!(redis.cli(&["SET", &lock, "dead", "PX", "2000"]).trim(), "OK");
        } else {
            redis.cli(&["CLIENT", "PAUSE", "1500", "ALL"]);
        }
        std::thread::scope(|scope| {
            for node in nodes.iter().cycle().take(6) {
                let mut tab = browser.clone();
                scope.spawn(move || assert_eq!(tab.get(node, "/a").status, 200));
            }
        });
        assert_eq!(refreshes(), at + 1);
    }
}

#[test]
fn sessions_in_redis_end_with_the_logout() {
    let (idp, redis, upstream) = (Idp::start(), Redis::start(), Upstream::echo("a"));
    let gateway = gateway(&idp, &upstream, &sessions_in(&redis));
    let mut browser = Browser::default();
    assert_eq!(browser.log_in(&gateway, &idp, "/a").status, 200);
    let keys = redis.cli(&["KEYS", "sessions:*"]);
    let key = keys.trim();
    assert!(key.starts_with("sessions:") && !key.contains('\n'), "{keys}");
    // Neither the cookie nor the value shows a token.
    assert!(!redis.cli(&["GET", key]).contains("at1"));
    // A stolen cookie ends with the session, other than one that has the session in it.
    let mut thief = browser.clone();
    assert_eq!(thief.get(&gateway, "/a").status, 200);
    assert_eq!(browser.get(&gateway, "/logout").status, 302);
    assert_eq!(thief.get(&gateway, "/a").status, 302);
    assert_eq!(redis.cli(&["KEYS", "sessions:*"]).trim(), "");
}

#[test]
fn requests_are_pushed_and_signed() {
    let (idp, upstream) = (Idp::start(), Upstream::echo("a"));
    let (_, pem, _) = run("openssl", &["genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"]);
    let more = json!({
        "client_secret": null, "token_endpoint_auth_method": "private_key_jwt", "client_rsa_private_key": pem,
        "client_rsa_private_key_id": "mine", "par": {"enabled": true}, "use_pkce": true,
    });
    let mut plugin = settings(&idp, &more);
    plugin.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    let gateway = with_plugins(&upstream, &json!({ "openid-connect": plugin }));
    let mut browser = Browser::default();
    let start = browser.get(&gateway, "/a").field("location").unwrap().to_owned();
    let query: BTreeMap<String, String> = parameters(start.split_once('?').unwrap().1);
    assert_eq!(query.keys().collect::<Vec<_>>(), ["client_id", "request_uri"]);
    assert_eq!(browser.get(&gateway, &idp.log_in(&start)).status, 302);
    assert_eq!(browser.get(&gateway, "/a").status, 200);
    for path in ["/par", "/token"] {
        let calls = idp.calls(path);
        let call = calls.last().unwrap();
        assert!(!call.contains_key("authorization") && !call.contains_key("client_secret"), "{path}");
        assert_eq!(call["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
        let assertion = call["client_assertion"].split('.').nth(1).unwrap();
        let text = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(assertion).unwrap();
        let claims: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            (&claims["iss"], &claims["aud"]),
            (&json!("me"), &json!(format!("{}{path}", idp.issuer())))
        );
    }
}

#[test]
fn several_providers_and_keys_authenticate_side_by_side() {
    let (first, second, upstream) = (Idp::start(), Idp::start(), Upstream::echo("a"));
    let only = json!({"bearer_only": true, "use_jwks": true});
    let auth_plugins = json!([
        {"openid-connect": settings(&first, &only)}, {"openid-connect": settings(&second, &only)}, {"key-auth": {}},
    ]);
    let plugins = json!({ "multi-auth": { "auth_plugins": auth_plugins } });
    let route = json!({ "id": "1", "uri": "/*", "plugins": plugins, "upstream": upstream.alone() });
    let consumer = json!({ "username": "jack", "plugins": { "key-auth": { "key": "k" } } });
    let gateway = Gateway::start(&json!({ "routes": [route], "consumers": [consumer] }));
    for idp in [&first, &second] {
        let token = idp.token(&json!({}));
        eventually("the keys are fetched", 10, || bearer(&gateway, &token) == 200);
        assert_eq!(bearer(&gateway, &format!("{token}x")), 401);
    }
    // A key of the second provider does not sign for the first one.
    assert_eq!(bearer(&gateway, &second.token(&json!({"iss": first.issuer()}))), 401);
    let seen = gateway.get_with("/a", "apikey: k\r\nX-Userinfo: forged\r\n").json();
    assert_eq!(
        (&seen["fields"]["x-consumer-username"], &seen["fields"]["x-userinfo"]),
        (&json!("jack"), &Value::Null)
    );
    let refused = gateway.get_with("/a", "apikey: wrong\r\n");
    assert_eq!((refused.status, refused.json()["message"].as_str()), (401, Some("Authorization Failed")));
}
