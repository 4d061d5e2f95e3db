//! Entries of the parsers for fuzz targets, which alone see them. Each one panics if its property does not hold.

use yumen_http::Fields;

use crate::cas_auth::messages;
use crate::jose::jwe::JweToken;
use crate::jose::{JoseToken, JwkSet};
use crate::openid_connect::provider::ProviderMetadata;
use crate::traces::b3::B3Context;
use crate::traces::sw8::Sw8Context;
use crate::traces::w3c::{self, TraceParent};

pub use crate::logging::fuzzed::log_format;
pub use crate::session::fuzzed::session_cookie;

/// The key set of RFC 7517, appendix A.1.
const KEYS: &[u8] = br#"{"keys": [
    {"kty": "EC", "kid": "e", "crv": "P-256", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
     "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"},
    {"kty": "RSA", "kid": "r", "e": "AQAB", "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"}
]}"#;

/// A signed or encrypted token: no text has a valid signature or ciphertext.
pub fn jose_token(bytes: &[u8]) {
    let keys = JwkSet::parse(KEYS).expect("a key set");
    let text = std::str::from_utf8(bytes).ok();
    if let Some(token) = text.and_then(JoseToken::read) {
        assert!(!token.is_unsigned() || token.lacks_signature());
        assert!(keys.verify(&token, &[]).is_err(), "a forged token");
    }
    if let Some(token) = JweToken::read(bytes) {
        let key = aws_lc_rs::aead::UnboundKey::new(&aws_lc_rs::aead::AES_256_GCM, &[7; 32]).expect("a key");
        assert!(token.decrypt(&aws_lc_rs::aead::LessSafeKey::new(key)).is_none(), "a forged token");
    }
}

/// A key set: a token of another issuer is not verified by it, and a set with a private key is refused.
pub fn key_set(bytes: &[u8]) {
    // A signature of 64 zeros.
    let text = format!("eyJhbGciOiJFUzI1NiJ9.e30.{}", "A".repeat(86));
    if let Ok(keys) = JwkSet::parse(bytes) {
        let token = JoseToken::read(&text).expect("a token");
        assert!(keys.verify(&token, &[]).is_err(), "a signature of zeros");
    }
}

/// A discovery document: its endpoints for browsers are web URLs.
pub fn discovery_document(bytes: &[u8]) {
    if let Ok(metadata) = ProviderMetadata::parse(bytes) {
        let is_web = |url: &String| url.starts_with("https://") || url.starts_with("http://");
        assert!(!metadata.issuer.is_empty());
        assert!(metadata.authorization_endpoint.iter().chain(&metadata.end_session_endpoint).all(is_web));
    }
}

/// Messages of a CAS server: users and tickets are short, and occur in the message.
pub fn cas_messages(bytes: &[u8]) {
    for text in [messages::validated_user(bytes), messages::logged_out_ticket(bytes)].into_iter().flatten() {
        assert!(!text.is_empty() && text.len() <= 1024 && text.trim() == text);
    }
}

/// Fields with trace context: a context is written as it was read, and the state stays within its limits.
pub fn trace_context(bytes: &[u8]) {
    if let Some(parent) = TraceParent::parse(bytes) {
        assert_eq!(TraceParent::parse(&parent.text()), Some(parent));
    }
    if let Some(context) = Sw8Context::parse(bytes) {
        assert_eq!(Sw8Context::parse(context.text().as_bytes()), Some(context));
    }
    let mut fields = Fields::default();
    for line in bytes.split(|byte| *byte == b'\n') {
        fields.add(w3c::TRACESTATE, line);
    }
    w3c::settle_state(&mut fields, true);
    if let Some(state) = w3c::state(&fields) {
        assert!(state.len() <= 512 && fields.all(w3c::TRACESTATE).count() == 1);
    }
    if let Ok(context) = B3Context::parse(bytes)
        && let Some(ids) = context.ids
    {
        ids.trace_id.with_text(|digits| assert!(bytes.to_ascii_lowercase().starts_with(digits)));
    }
}
