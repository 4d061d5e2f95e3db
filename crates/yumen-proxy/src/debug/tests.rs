use super::{DebugKey, sign, verify};

fn check(token: &str, now_unix_s: u64, expected: bool) {
    let key = DebugKey::new(b"a secret of the gateway");
    assert_eq!(verify(&key, token.as_bytes(), now_unix_s), expected, "{token} at {now_unix_s}");
}

#[test]
fn a_token_holds_until_it_expires() {
    let token = sign(&DebugKey::new(b"a secret of the gateway"), 2_000);
    assert!(token.starts_with("v1.2000."), "{token}");
    for (now_unix_s, expected) in [(0, true), (1_999, true), (2_000, false), (u64::MAX, false)] {
        check(&token, now_unix_s, expected);
    }
}

#[test]
fn token_with_another_key_is_invalid() {
    let token = sign(&DebugKey::new(b"a secret of the gateway"), 2_000);
    let foreign = sign(&DebugKey::new(b"another secret"), 2_000);
    let (_, signature) = token.rsplit_once('.').unwrap();
    let flipped = if token.ends_with('0') { "1" } else { "0" };
    for bad in [
        foreign.as_str(),
        "",
        ".",
        "v1.2000",
        "v1.2000.",
        "v1.2000.zz",
        &format!("v1.2001.{signature}"),
        &format!("v2.2000.{signature}"),
        &format!("v1.+2000.{signature}"),
        &format!("v1..{signature}"),
        &format!("{token}00"),
        &format!("{}{flipped}", &token[..token.len() - 1]),
        &format!("v1.99999999999999999999999.{signature}"),
    ] {
        check(bad, 1_000, false);
    }
}

#[test]
fn a_signature_is_read_in_any_case() {
    let token = sign(&DebugKey::new(b"a secret of the gateway"), 2_000);
    check(&token.to_ascii_uppercase().replace("V1", "v1"), 1_000, true);
}

#[test]
fn a_key_does_not_show() {
    assert_eq!(format!("{:?}", DebugKey::new(b"a secret")), "DebugKey");
}
