use aws_lc_rs::aead::{Aad, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::JweCredential;
use crate::testing::PluginBench;

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A token for the text, with this header.
fn token(header: &Value, secret: &str, text: &[u8]) -> String {
    let credential: JweCredential = serde_json::from_value(json!({ "key": "k", "secret": secret })).unwrap();
    let header = URL_SAFE_NO_PAD.encode(header.to_string());
    let mut sealed = text.to_vec();
    let tag = credential
        .cipher
        .seal_in_place_separate_tag(Nonce::assume_unique_for_key([7; 12]), Aad::from(&*header), &mut sealed)
        .unwrap();
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    format!("{header}..{}.{}.{}", encode(&[7; 12]), encode(&sealed), encode(tag.as_ref()))
}

fn dir(kid: Value) -> Value {
    json!({ "alg": "dir", "enc": "A256GCM", "kid": kid })
}

/// The status, and the field `X-Text` of the forwarded request or the message.
fn ask(settings: Value, field: &str) -> (u16, String) {
    let mut bench = PluginBench::new();
    let jack = bench.add_consumer("jack");
    bench.add_key(&jack, "jwe-decrypt", json!({"key": "k", "secret": SECRET}), None);
    let encoded = json!({"key": "b", "secret": URL_SAFE_NO_PAD.encode(SECRET), "is_base64_encoded": true});
    bench.add_key(&jack, "jwe-decrypt", encoded, Some("second"));
    let plugin = bench.plugin("jwe-decrypt", settings);
    let reply = bench.run(&plugin, &format!("GET / HTTP/1.1\n{field}"));
    let forwarded = reply.upstream.is_some().then(|| reply.upstream_field("X-Text")).flatten();
    let text = forwarded.unwrap_or_else(|| reply.body.clone());
    (reply.status, text)
}

#[test]
fn the_text_of_a_token_is_forwarded() {
    let settings = || json!({"header": "Authorization", "forward_header": "X-Text"});
    for kid in ["k", "b"] {
        let token = token(&dir(kid.into()), SECRET, b"hello");
        for scheme in ["", "Bearer ", "bearer "] {
            let field = format!("Authorization: {scheme}{token}\nx_text: forged");
            assert_eq!(ask(settings(), &field), (200, "hello".into()), "{kid} {scheme}");
        }
    }
    let lenient = json!({"header": "Authorization", "forward_header": "X-Text", "strict": false});
    // Without a token, the client must not choose the text either.
    assert_eq!(ask(lenient, "A: b\nX_Text: forged\nx-text: forged"), (200, "ok\n".into()));
}

#[test]
fn tokens_that_cannot_be_decrypted_are_refused() {
    let good = token(&dir("k".into()), SECRET, b"hello");
    let other = token(&dir("k".into()), "ffffffffffffffffffffffffffffffff", b"hello");
    let changed = |at: usize| {
        let mut parts: Vec<String> = good.split('.').map(str::to_owned).collect();
        let first = if parts[at].starts_with('A') { "B" } else { "A" };
        parts[at].replace_range(..1, first);
        parts.join(".")
    };
    let wrapped = json!({ "alg": "A256KW", "enc": "A256GCM", "kid": "k" });
    for (field, status, message) in [
        ("A: b".to_owned(), 403, "missing JWE token in request"),
        ("Authorization: x.y".to_owned(), 400, "JWE token invalid"),
        (format!("Authorization: {good}.x"), 400, "JWE token invalid"),
        (format!("Authorization: {}", token(&wrapped, SECRET, b"x")), 400, "JWE token invalid"),
        (
            format!("Authorization: {}", token(&dir(Value::Null), SECRET, b"x")),
            400,
            "missing kid in JWE token",
        ),
        (
            format!("Authorization: {}", token(&dir("no".into()), SECRET, b"x")),
            400,
            "invalid kid in JWE token",
        ),
        (format!("Authorization: {other}"), 400, "failed to decrypt JWE token"),
        (format!("Authorization: {}", changed(2)), 400, "failed to decrypt JWE token"),
        (format!("Authorization: {}", changed(3)), 400, "failed to decrypt JWE token"),
        (format!("Authorization: {}", changed(4)), 400, "failed to decrypt JWE token"),
        (
            format!("Authorization: {}", token(&dir("k".into()), SECRET, b"a\r\nX-Admin: 1")),
            400,
            "failed to decrypt JWE token",
        ),
    ] {
        let settings = json!({"header": "Authorization", "forward_header": "X-Text"});
        let expected = format!("{{\"message\":\"{message}\"}}\n");
        assert_eq!(ask(settings, &field), (status, expected), "{field}");
    }
}

#[test]
fn a_secret_that_is_no_key_is_refused() {
    for (secret, is_base64_encoded, reason) in [
        ("short", false, "the secret has 5 bytes; a key for A256GCM has 32"),
        ("+/", true, "the secret is not base64url"),
    ] {
        let written = json!({ "key": "k", "secret": secret, "is_base64_encoded": is_base64_encoded });
        let refused = serde_json::from_value::<JweCredential>(written).err().map(|error| error.to_string());
        assert_eq!(refused.as_deref(), Some(reason));
    }
}
