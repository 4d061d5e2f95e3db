use serde_json::{Value, json};

use super::*;

fn spec(members: Value) -> SessionSpec {
    let mut written = json!({"name": "s"});
    written.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(written).unwrap()
}

fn ticket(address: &str) -> SessionTicket {
    SessionTicket { backend: 7, address: address.parse().unwrap(), issued_s: 1000 }
}

#[test]
fn a_sealed_ticket_opens_with_its_key_and_name() {
    let (old, new) = ([1; SESSION_KEY_BYTES], [2; SESSION_KEY_BYTES]);
    for address in ["10.0.0.1:80", "[2001:db8::1]:65535"] {
        let value = SessionKeys::new(&[old]).seal("s", &ticket(address)).unwrap();
        let check = |keys: &[[u8; SESSION_KEY_BYTES]], name: &str, value: &[u8], opens: bool| {
            let opened = SessionKeys::new(keys).open(name, value);
            assert_eq!(opened, opens.then(|| ticket(address)), "{name} {}", keys.len());
        };
        check(&[old], "s", value.as_bytes(), true);
        // A rotated set still opens values of the key before.
        check(&[new, old], "s", value.as_bytes(), true);
        check(&[new], "s", value.as_bytes(), false);
        check(&[], "s", value.as_bytes(), false);
        check(&[old], "t", value.as_bytes(), false);
        let mut forged = value.clone().into_bytes();
        forged[20] ^= 1;
        check(&[old], "s", &forged, false);
        for broken in [&b""[..], b"10.0.0.1:80", b"%%%", &[b'A'; 5000], &value.as_bytes()[..20]] {
            check(&[old], "s", broken, false);
        }
        assert!(!value.contains("10.0"));
    }
    assert_eq!(SessionKeys::new(&[]).seal("s", &ticket("10.0.0.1:80")), None);
}

#[test]
fn a_session_ends_by_its_longest_life() {
    let check = |members: Value, now_s: u64, expected: bool| {
        assert_eq!(
            ticket("10.0.0.1:80").is_over(&spec(members.clone()), now_s),
            expected,
            "{members} {now_s}"
        );
    };
    check(json!({}), u64::MAX, false);
    check(json!({"max_age_s": 10}), 1009, false);
    check(json!({"max_age_s": 10}), 1010, true);
    // The clock of another gateway may be ahead.
    check(json!({"max_age_s": 10}), 900, false);
}

#[test]
fn a_session_is_carried_by_a_cookie_or_a_field() {
    let check = |members: Value, is_secure: bool, expected: (&str, &str)| {
        let spec = spec(members);
        let client = CookieClient { is_secure, now_s: 784_111_777, ..CookieClient::default() };
        let (name, value) = response_field(&spec, "v", client);
        assert_eq!((name, &*value), expected);
    };
    check(json!({}), false, ("Set-Cookie", "s=v; Path=/; HttpOnly"));
    check(json!({"max_age_s": 10}), true, ("Set-Cookie", "s=v; Path=/; Secure; HttpOnly"));
    let all = json!({
        "max_age_s": 10,
        "is_permanent": true,
        "cookie": {"path": "/a", "domain": "a.example", "secure": true, "http_only": false, "same_site": "lax"},
    });
    let expected = "s=v; Path=/a; Domain=a.example; Max-Age=10; Secure; SameSite=Lax";
    check(all, false, ("Set-Cookie", expected));
    check(json!({"kind": "header"}), true, ("s", "v"));
    let expected = "s=v; Path=/; Expires=Sun, 06 Nov 1994 08:50:37 GMT; HttpOnly";
    check(json!({"cookie": {"expires_s": 60}}), false, ("Set-Cookie", expected));
}

#[test]
fn a_browser_that_rejects_the_attribute_does_not_get_it() {
    let check = |agent: &str, expected: bool| {
        let spec = spec(json!({"cookie": {"same_site": "none_if_supported"}}));
        let client = CookieClient { agent: agent.as_bytes(), ..CookieClient::default() };
        let (_, value) = response_field(&spec, "v", client);
        assert_eq!(value.ends_with("; SameSite=None"), expected, "{agent}");
    };
    check("", true);
    check("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/61.0.3163.100 Safari/537.36", false);
    check("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/120.0.0.0 Safari/537.36", true);
    check("Mozilla/5.0 (iPhone; CPU iPhone OS 12_1 like Mac OS X) AppleWebKit/605.1.15 Version/12.0", false);
    check(
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_14_6) AppleWebKit/605.1.15 Version/13.0 Safari/605.1.15",
        false,
    );
    check(
        "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/17.0 Safari/605.1.15",
        true,
    );
}

#[test]
fn a_key_of_a_session_is_read_as_written() {
    let session = HashedSession { key: 7, backend: u64::MAX };
    assert_eq!(HashedSession::decode(session.encode().as_bytes()), Some(session));
    for broken in ["", ".", "7.8", "+000000000000007.ffffffffffffffff", "000000000000000g.ffffffffffffffff"] {
        assert_eq!(HashedSession::decode(broken.as_bytes()), None, "{broken}");
    }
}
