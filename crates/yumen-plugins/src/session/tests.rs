use std::rc::Rc;
use std::sync::Arc;

use serde_json::{Value, json};
use yumen_http::{HeadLimits, parse};
use yumen_plugin::{Now, PluginHost, RequestHead};

use super::cookie::{CHUNK_BYTES_MAX, CHUNKS_MAX, join};
use super::memory_redis::{MemoryRedis, MemoryRedisClient};
use super::seal::SALT_BYTES;
use super::store::{SessionTimeouts, SessionTimes};
use super::*;
use crate::testing::{ManualHost, PluginBench, ready};

const OLD: &str = "0123456789abcdef";
const NEW: &str = "fedcba9876543210";

fn keys(secrets: &[&'static str]) -> LoginSealKeys {
    LoginSealKeys::new(secrets.iter().copied())
}

fn store(more: Value) -> SessionStore {
    let mut settings = json!({ "secret": OLD });
    settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let settings: SessionSettings = serde_json::from_value(settings).expect("the settings are right");
    let (carry, node) = Default::default();
    let setup = yumen_plugin::PluginBuildContext {
        carry: &carry,
        owner: "routes/1",
        metadata: None,
        node: &node,
        objects: None,
        sinks: None,
        nested: None,
    };
    settings.build(&setup).unwrap_or_else(|refused| panic!("{}", refused.message))
}

fn session(claims: Value) -> LoginSession {
    LoginSession {
        issuer: "https://idp".to_owned(),
        client_id: "me".to_owned(),
        subject: "alice".to_owned(),
        sid: None,
        access_token: Some("access".to_owned()),
        refresh_token: Some("refresh".to_owned()),
        id_token: None,
        user: Some(claims),
        access_expires_s: 2_000_000_000,
        authenticated_s: 1_700_000_000,
    }
}

/// A text that deflate does not shorten much.
fn noise(length: usize) -> String {
    let host = ManualHost::default();
    (0..length)
        .map(|_| char::from(b'!' + (host.random() % 90) as u8))
        .filter(|c| !"\"\\;,".contains(*c))
        .collect()
}

fn head(cookies: &[String]) -> RequestHead {
    let mut bytes = "GET / HTTP/1.1\r\nHost: a\r\n".to_owned();
    for cookie in cookies {
        let pair = cookie.split(';').next().unwrap_or_default();
        bytes.push_str(&format!("Cookie: {pair}\r\n"));
    }
    bytes.push_str("\r\n");
    let mut head = RequestHead::default();
    let limits = HeadLimits { head_bytes_max: 128 * 1024, ..HeadLimits::default() };
    parse::request(bytes.as_bytes(), 0, &limits, &mut head).expect("a well-formed request");
    head
}

#[test]
fn every_changed_byte_is_found() {
    let keys = keys(&[OLD]);
    for text in [b"short".to_vec(), noise(700).into_bytes()] {
        let sealed = keys.seal(CookiePurpose::Session, "session", &text, [7; SALT_BYTES]).unwrap();
        assert_eq!(keys.open(CookiePurpose::Session, "session", sealed.as_bytes()), Ok((text, 0)));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(keys.open(CookiePurpose::Session, "session", &changed).is_err(), "byte {at}");
            assert!(keys.open(CookiePurpose::Session, "session", &changed[..at]).is_err(), "cut at {at}");
        }
    }
}

#[test]
fn a_value_opens_only_as_its_own_cookie() {
    let keys = keys(&[OLD]);
    let sealed = keys.seal(CookiePurpose::Session, "session", b"text", [1; SALT_BYTES]).unwrap();
    for (purpose, name) in [
        (CookiePurpose::LoginState, "session"),
        (CookiePurpose::StoredSession, "session"),
        (CookiePurpose::Session, "session2"),
    ] {
        assert_eq!(
            keys.open(purpose, name, sealed.as_bytes()),
            Err(SealFault::Tampered),
            "{purpose:?} {name}"
        );
    }
}

#[test]
fn former_secrets_open_and_do_not_seal() {
    let (old, rotated) = (keys(&[OLD]), keys(&[NEW, OLD]));
    let seal =
        |keys: &LoginSealKeys| keys.seal(CookiePurpose::Session, "s", b"text", [1; SALT_BYTES]).unwrap();
    let open = |keys: &LoginSealKeys, text: &str| keys.open(CookiePurpose::Session, "s", text.as_bytes());
    assert_eq!(open(&rotated, &seal(&old)), Ok((b"text".to_vec(), 1)));
    assert_eq!(open(&rotated, &seal(&rotated)), Ok((b"text".to_vec(), 0)));
    assert_eq!(open(&old, &seal(&rotated)), Err(SealFault::UnknownKey));
}

#[test]
fn a_deflated_bomb_is_refused() {
    let keys = keys(&[OLD]);
    for (length, is_opened) in [(256 * 1024, true), (256 * 1024 + 1, false)] {
        let sealed = keys.seal(CookiePurpose::Session, "s", &vec![b'a'; length], [1; SALT_BYTES]).unwrap();
        assert!(sealed.len() < 4096);
        assert_eq!(keys.open(CookiePurpose::Session, "s", sealed.as_bytes()).is_ok(), is_opened, "{length}");
    }
}

/// The cookies of a session, saved in the answer to a request with `cookies`.
fn save(
    store: &SessionStore,
    session: &LoginSession,
    cookies: &[String],
) -> Result<Vec<String>, SessionFault> {
    let (host, head) = (ManualHost::default(), head(cookies));
    let request = CookieRequest { head: &head, is_https: true, now_s: 1_700_000_000 };
    ready(Box::pin(store.save(&host, request, session, SessionSave::Login)))
}

/// The session of a request with these cookies at a time.
fn find(store: &SessionStore, cookies: &[String], now_s: u64) -> Option<LoginSession> {
    let mut bench = PluginBench::new();
    bench.host.set_now(Now { mono_us: 0, unix_ms: now_s * 1000 });
    let mut ex = bench.exchange("GET / HTTP/1.1");
    ex.request = Box::new(head(cookies));
    let found = match store.find(&ex) {
        SessionLookup::Found(opened) => Some(opened.session.clone()),
        _ => None,
    };
    drop(ex);
    bench.owner.clear();
    found
}

#[test]
fn a_session_is_split_over_cookies_and_joined() {
    let store = store(json!({}));
    for (length, count) in [(10, 1), (5_000, 2), (20_000, 6)] {
        let session = session(json!({ "name": noise(length) }));
        let cookies = save(&store, &session, &[]).unwrap();
        assert_eq!(cookies.len(), count, "{length}");
        for cookie in &cookies {
            assert!(cookie.split(';').next().unwrap().len() <= CHUNK_BYTES_MAX + 10);
            assert!(cookie.ends_with("; Path=/; HttpOnly; Secure; SameSite=Lax"), "{cookie}");
        }
        assert_eq!(find(&store, &cookies, 1_700_000_001), Some(session));
        // A missing part is no session.
        for missing in 0..count {
            let mut rest = cookies.clone();
            rest.remove(missing);
            assert_eq!(find(&store, &rest, 1_700_000_001), None, "{length} without {missing}");
        }
        // A surplus part is ignored, and removed with the next save.
        let surplus: Vec<String> = cookies.iter().cloned().chain(["session_8=x".to_owned()]).collect();
        assert!(find(&store, &surplus, 1_700_000_001).is_some());
        let saved = save(&store, &self::session(json!({})), &surplus).unwrap();
        assert_eq!(saved.len(), 1 + count, "{saved:?}");
        assert!(saved[1..].iter().all(|line| line.contains("=; Path=/; Max-Age=0")), "{saved:?}");
    }
}

#[test]
fn a_session_beyond_eight_cookies_loses_the_id_token_then_the_claims() {
    let store = store(json!({}));
    let mut large = session(json!({ "name": "a" }));
    large.id_token = Some(noise(40_000));
    let cookies = save(&store, &large, &[]).unwrap();
    let found = find(&store, &cookies, 1_700_000_001).unwrap();
    assert_eq!((found.id_token, found.user), (None, large.user.clone()));
    large.user = Some(json!({ "name": noise(40_000) }));
    let found = find(&store, &save(&store, &large, &[]).unwrap(), 1_700_000_001).unwrap();
    assert_eq!((found.id_token, found.user, found.access_token), (None, None, large.access_token.clone()));
    large.access_token = Some(noise(40_000));
    assert_eq!(save(&store, &large, &[]), Err(SessionFault::TooLarge));
    // Just below the limit: 31 KB of cookies.
    large.access_token = Some(noise(29_000));
    assert_eq!(save(&store, &large, &[]).map(|cookies| cookies.len()), Ok(CHUNKS_MAX));
}

#[test]
fn timeouts_hold_to_the_second() {
    let saved_s = 1_700_000_000;
    for (settings, lifetime_s) in [
        (json!({}), 900),
        (json!({"idling_timeout": 10}), 10),
        (json!({"idling_timeout": 0}), 3600),
        (json!({"idling_timeout": 0, "rolling_timeout": 0}), 86_400),
        (json!({"idling_timeout": 0, "rolling_timeout": 0, "absolute_timeout": 50}), 50),
        (json!({"idling_timeout": 0, "rolling_timeout": 0, "cookie": {"lifetime": 60}}), 60),
        (json!({"absolute_timeout": 5}), 5),
    ] {
        let store = store(settings.clone());
        let cookies = save(&store, &session(json!({})), &[]).unwrap();
        for (now_s, is_found) in
            [(saved_s, true), (saved_s + lifetime_s - 1, true), (saved_s + lifetime_s, false)]
        {
            assert_eq!(
                find(&store, &cookies, now_s).is_some(),
                is_found,
                "{settings} at {}",
                now_s - saved_s
            );
        }
    }
}

#[test]
fn a_session_is_renewed_after_a_tenth_of_its_time_and_never_beyond_its_end() {
    let timeouts = SessionTimeouts { idle_s: 100, rolling_s: 1000, absolute_s: 500 };
    let times = SessionTimes { created_s: 0, used_s: 450 };
    for (now_s, is_due) in [(450, false), (460, false), (461, true), (400, false)] {
        assert_eq!(timeouts.is_renewal_due(times, now_s), is_due, "{now_s}");
    }
    assert_eq!(timeouts.end_s(times), 500);
    assert_eq!(timeouts.end_s(SessionTimes { created_s: 0, used_s: 20 }), 120);
}

#[test]
fn cookie_attributes_follow_the_settings() {
    let attributes = |settings| store(settings).attributes().line("n", "v", Some(1), false);
    for (settings, expected) in [
        (json!({}), "n=v; Path=/; Max-Age=1; HttpOnly; SameSite=Lax"),
        (
            json!({"cookie_path": "/a", "cookie_domain": "b.test", "cookie_secure": true, "cookie_http_only": false,
                "cookie_same_site": "Strict"}),
            "n=v; Path=/a; Domain=b.test; Max-Age=1; Secure; SameSite=Strict",
        ),
        (json!({"cookie_same_site": "None"}), "n=v; Path=/; Max-Age=1; HttpOnly; Secure; SameSite=None"),
        (json!({"cookie_same_site": "Default"}), "n=v; Path=/; Max-Age=1; HttpOnly"),
    ] {
        assert_eq!(attributes(settings), expected);
    }
}

#[test]
fn malformed_counts_of_parts_are_no_session() {
    for value in ["", "0.a", "9.a", "a", "1", "12.a"] {
        let cookie = format!("session={value}");
        let head = head(&[cookie]);
        let joined = join(&head, "session");
        assert!(!matches!(joined, Ok(Some(_))), "{value}");
    }
}

/// The session that these cookies name in the store.
fn load(store: &SessionStore, host: &ManualHost, cookies: &[String]) -> Arc<OpenedLogin> {
    let bench = PluginBench::new();
    let mut ex = bench.exchange("GET / HTTP/1.1");
    *ex.request = head(cookies);
    let SessionLookup::Stored(id) = store.find(&ex) else { panic!("no session in the store") };
    let loaded = ready(Box::pin(store.load(host, id, 1_700_000_001)));
    loaded.ok().flatten().expect("the session is in the store")
}

#[test]
fn session_in_redis_that_has_ended_is_not_written_again() {
    let redis = Rc::<MemoryRedis>::default();
    let store = store(json!({"storage": "redis", "redis": {}}));
    let mut host = ManualHost::default();
    host.outbound = Some(Rc::new(MemoryRedisClient(redis.clone())));
    let empty = head(&[]);
    let request = CookieRequest { head: &empty, is_https: true, now_s: 1_700_000_000 };
    let session = session(json!({}));
    let save = |reason| ready(Box::pin(store.save(&host, request, &session, reason)));
    let cookies = save(SessionSave::Login).unwrap();
    let opened = load(&store, &host, &cookies);
    assert_eq!(save(SessionSave::Tokens(&opened)), Ok(Vec::new()));
    ready(Box::pin(store.clear(&host, request, Some(&*opened)))).unwrap();
    for reason in [SessionSave::Tokens(&opened), SessionSave::Use(&opened)] {
        assert_eq!((save(reason), redis.keys()), (Err(SessionFault::Ended), Vec::new()));
    }
}
