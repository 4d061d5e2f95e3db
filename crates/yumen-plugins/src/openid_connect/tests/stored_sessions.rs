//! Sessions in Redis, which several nodes renew.

use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::session::memory_redis::{LOCK, MemoryRedis, MemoryRedisClient, RENEW, REPLACE};

/// Two nodes with one Redis, and a session whose tokens the first one has renewed once.
struct RenewalBench {
    redis: Rc<MemoryRedis>,
    node: LoginBench,
    cookies: String,
    key: String,
    /// The session with expired tokens, and with renewed ones.
    expired: Vec<u8>,
    renewed: Vec<u8>,
}

fn node(redis: &Rc<MemoryRedis>) -> LoginBench {
    let mut node = LoginBench::new(json!({"session": {"secret": SECRET, "storage": "redis", "redis": {}}}));
    node.bench.host.outbound = Some(Rc::new(MemoryRedisClient(redis.clone())));
    node
}

/// Time after the login at which the tokens have ended.
const EXPIRED: Duration = Duration::from_secs(100);

impl RenewalBench {
    fn new() -> RenewalBench {
        let redis = Rc::<MemoryRedis>::default();
        let (mut first, mut second) = (node(&redis), node(&redis));
        let cookies = cookie_fields(&first.log_in("/shop", &json!({})));
        let key = redis.keys().pop().expect("a session");
        let value = || redis.values.borrow()[&key].clone();
        let expired = value();
        first.bench.host.advance(EXPIRED);
        redis.now.set(first.bench.host.now());
        first.answer(200, &json!({"access_token": "at2", "refresh_token": "rt2", "expires_in": 1000}));
        assert_eq!(first.get("/shop", &cookies).upstream_field("X-Access-Token").as_deref(), Some("at2"));
        // The lock is released.
        assert_eq!(redis.keys(), std::slice::from_ref(&key));
        let renewed = value();
        redis.values.borrow_mut().insert(key.clone(), expired.clone());
        second.answer(200, &json!({"access_token": "at3", "refresh_token": "rt3", "expires_in": 1000}));
        RenewalBench { node: second, cookies, expired, renewed, key, redis }
    }

    /// The answer to a request of the second node: its status, the access token, and the number of grants.
    fn get(&self, after: Duration) -> (u16, Option<String>, usize) {
        self.node.bench.host.advance(after);
        self.redis.now.set(self.node.bench.host.now());
        let reply = self.node.get("/shop", &self.cookies);
        let token = reply.upstream.is_some().then(|| reply.upstream_field("X-Access-Token")).flatten();
        (reply.status, token, self.node.calls().len())
    }

    fn hold_lock(&self) -> String {
        let lock = format!("{}:renewal", self.key);
        self.redis.values.borrow_mut().insert(lock.clone(), b"another node".to_vec());
        lock
    }

    fn value(&self) -> Vec<u8> {
        self.redis.values.borrow().get(&self.key).cloned().unwrap_or_default()
    }
}

#[test]
fn nodes_wait_for_the_one_that_renews() {
    let bench = RenewalBench::new();
    let lock = bench.hold_lock();
    let (key, renewed) = (bench.key.clone(), bench.renewed.clone());
    *bench.redis.before.borrow_mut() = Some((LOCK, Box::new(|values| drop(values.insert(key, renewed)))));
    assert_eq!(bench.get(EXPIRED), (200, Some("at2".to_owned()), 0));
    assert_eq!(bench.redis.keys(), [bench.key.clone(), lock]);
}

#[test]
fn session_that_was_renewed_before_the_lock_was_taken_is_not_renewed_again() {
    let bench = RenewalBench::new();
    let (key, renewed) = (bench.key.clone(), bench.renewed.clone());
    *bench.redis.before.borrow_mut() = Some((LOCK, Box::new(|values| drop(values.insert(key, renewed)))));
    assert_eq!(bench.get(EXPIRED), (200, Some("at2".to_owned()), 0));
    assert_eq!(bench.redis.keys(), std::slice::from_ref(&bench.key));
}

#[test]
fn node_that_finds_no_renewal_in_time_sends_no_grant() {
    let bench = RenewalBench::new();
    let lock = bench.hold_lock();
    assert_eq!(bench.get(EXPIRED), (503, None, 0));
    assert_eq!(bench.redis.keys(), [bench.key.clone(), lock]);
    assert_eq!(bench.value(), bench.expired);
}

#[test]
fn node_without_redis_keeps_the_refresh_token() {
    let bench = RenewalBench::new();
    bench.redis.has_no_locks.set(true);
    assert_eq!(bench.get(EXPIRED), (503, None, 0));
    assert_eq!(bench.value(), bench.expired);
    bench.redis.has_no_locks.set(false);
    assert_eq!(bench.get(Duration::ZERO), (200, Some("at3".to_owned()), 1));
}

#[test]
fn lock_outlasts_the_grant_and_the_fetch_of_a_newer_key_set() {
    let bench = RenewalBench::new();
    assert_eq!(bench.get(EXPIRED).0, 200);
    // The time limit of one call is three seconds.
    assert!(bench.redis.locked_ms.get() >= 2 * 3000 + 1000, "{}", bench.redis.locked_ms.get());
}

#[test]
fn logout_during_a_renewal_stands() {
    let bench = RenewalBench::new();
    let key = bench.key.clone();
    *bench.redis.before.borrow_mut() = Some((RENEW, Box::new(move |values| drop(values.remove(&key)))));
    assert_eq!(bench.get(EXPIRED), (302, None, 1));
    assert!(bench.redis.keys().is_empty());
}

#[test]
fn use_of_a_session_does_not_replace_newer_tokens() {
    for is_renewed in [true, false] {
        let bench = RenewalBench::new();
        let (key, renewed) = (bench.key.clone(), bench.renewed.clone());
        if is_renewed {
            let change =
                Box::new(|values: &mut std::collections::BTreeMap<_, _>| drop(values.insert(key, renewed)));
            *bench.redis.before.borrow_mut() = Some((REPLACE, change));
        }
        // The tokens are valid, and the last use is long ago.
        assert_eq!(bench.get(Duration::from_secs(95)), (200, Some("at1".to_owned()), 0));
        assert_eq!(bench.value() == bench.renewed, is_renewed);
        assert_ne!(bench.value(), bench.expired);
    }
}

#[test]
fn provider_ends_sessions_by_a_logout_token() {
    let redis = Rc::<MemoryRedis>::default();
    let mut node = LoginBench::new(json!({
        "session": {"secret": SECRET, "storage": "redis", "redis": {}}, "backchannel_logout_path": "/ended",
    }));
    node.bench.host.outbound = Some(Rc::new(MemoryRedisClient(redis.clone())));
    let first = cookie_fields(&node.log_in("/shop", &json!({"sid": "s1"})));
    let second = cookie_fields(&node.log_in("/shop", &json!({"sid": "s2"})));
    let status = |cookies: &str| node.get("/shop", cookies).status;
    let event = json!({"http://schemas.openid.net/event/backchannel-logout": {}});
    let end = |changes: Value| {
        let mut claims = json!({"events": event, "sid": "s1"});
        claims.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        let body = format!("logout_token={}", node.provider.token(&claims));
        node.bench.run(&node.plugin, &format!("POST /ended HTTP/1.1\nHost: shop.test\n\n{body}"))
    };
    for changes in [
        json!({"iss": "https://other.test"}),
        json!({"aud": "other"}),
        json!({"nonce": "n"}),
        json!({"events": null}),
        json!({"events": {"other": {}}}),
        json!({"iat": null}),
        json!({"iat": NOW_S - 500}),
        json!({"exp": NOW_S - 500}),
        json!({"sid": null, "sub": null}),
    ] {
        let reply = end(changes.clone());
        assert_eq!(
            (reply.status, reply.field("Cache-Control").as_deref()),
            (400, Some("no-store")),
            "{changes}"
        );
    }
    for body in ["", "logout_token=a", "logout_token=a.b.c", "logout_token=eyJhbGciOiJub25lIn0.e30."] {
        let reply = node.bench.run(&node.plugin, &format!("POST /ended HTTP/1.1\nHost: shop.test\n\n{body}"));
        assert_eq!(reply.status, 400, "{body}");
    }
    let forged = MemoryProvider::new(&json!({})).token(&json!({"events": event, "sid": "s1"}));
    let forged = format!("POST /ended HTTP/1.1\nHost: shop.test\n\nlogout_token={forged}");
    assert_eq!(node.bench.run(&node.plugin, &forged).status, 400);
    assert_eq!((status(&first), status(&second)), (200, 200));
    assert_eq!(end(json!({})).status, 200);
    assert_eq!((status(&first), status(&second)), (302, 200));
    // Without a session, the token ends all of the user.
    assert_eq!(end(json!({"sid": null})).status, 200);
    assert_eq!(status(&second), 302);
    // One that names no session of ours ends none, and succeeds (§2.7).
    assert_eq!(end(json!({})).status, 200);
    assert_eq!(end(json!({"sid": "other"})).status, 200);
}

#[test]
fn logout_token_that_is_sent_again_ends_no_later_login() {
    let redis = Rc::<MemoryRedis>::default();
    let mut node = LoginBench::new(json!({
        "session": {"secret": SECRET, "storage": "redis", "redis": {}}, "backchannel_logout_path": "/ended",
    }));
    node.bench.host.outbound = Some(Rc::new(MemoryRedisClient(redis.clone())));
    let events = json!({"http://schemas.openid.net/event/backchannel-logout": {}});
    let end = |node: &LoginBench, id: &str| {
        let token = node.provider.token(&json!({"events": events, "sid": null, "jti": id}));
        node.bench.run(&node.plugin, &format!("POST /ended HTTP/1.1\nHost: a\n\nlogout_token={token}")).status
    };
    let first = cookie_fields(&node.log_in("/shop", &json!({})));
    // Without Redis it is not used up: the provider repeats it.
    redis.has_no_locks.set(true);
    assert_eq!(end(&node, "1"), 503);
    redis.has_no_locks.set(false);
    assert_eq!(node.get("/shop", &first).status, 200);
    assert_eq!(end(&node, "1"), 200);
    assert_eq!(node.get("/shop", &first).status, 302);
    let second = cookie_fields(&node.log_in("/shop", &json!({})));
    // The signature differs, its claims do not.
    assert_eq!((end(&node, "1"), node.get("/shop", &second).status), (200, 200));
    assert_eq!((end(&node, "2"), node.get("/shop", &second).status), (200, 302));
}
