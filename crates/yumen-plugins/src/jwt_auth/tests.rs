//! Tokens are signed here with private keys; the plugin only has the public keys.

use aws_lc_rs::encoding::{AsDer, PublicKeyX509Der};
use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RsaKeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::testing::{PluginBench, TestReply};

/// The time of the test clock.
const NOW_S: i64 = 1_700_000_000;

/// A token with this header and claims; `sign` signs the first two segments.
fn token(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(header), part(claims));
    let signature = URL_SAFE_NO_PAD.encode(sign(signed.as_bytes()));
    format!("{signed}.{signature}")
}

fn hs256(secret: &'static [u8]) -> impl Fn(&[u8]) -> Vec<u8> {
    move |text| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), text).as_ref().to_vec()
}

fn of_alice(claims: Value) -> String {
    token(&json!({"alg": "HS256", "typ": "JWT"}), &claims, hs256(b"my-secret"))
}

fn run_with(consumer: Value, settings: Value, request: &str) -> TestReply {
    let mut bench = PluginBench::new();
    let alice = bench.add_consumer("alice");
    bench.add_key(&alice, "jwt-auth", consumer, None);
    bench.add_consumer("nobody");
    let plugin = bench.plugin("jwt-auth", settings);
    bench.run(&plugin, request)
}

fn run(settings: Value, request: &str) -> TestReply {
    run_with(json!({"key": "user-key", "secret": "my-secret"}), settings, request)
}

#[track_caller]
fn check(settings: Value, request: &str, refusal: &str) {
    let reply = run(settings.clone(), request);
    if refusal.is_empty() {
        assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some("alice"), "{request}");
    } else {
        assert_eq!(reply.body, format!("{{\"message\":\"{refusal}\"}}\n"), "{settings} {request}");
        assert_eq!(reply.field("WWW-Authenticate").as_deref(), Some("Bearer realm=\"jwt\""));
    }
}

#[test]
fn a_token_is_found_in_a_field_an_argument_or_a_cookie() {
    let token = of_alice(json!({"key": "user-key"}));
    for request in [
        format!("GET / HTTP/1.1\nAuthorization: {token}"),
        format!("GET / HTTP/1.1\nAuthorization: Bearer {token}"),
        format!("GET / HTTP/1.1\nAuthorization: bearer {token}"),
        format!("GET /?jwt={token} HTTP/1.1"),
        format!("GET / HTTP/1.1\nCookie: a=b; jwt={token}"),
    ] {
        check(json!({}), &request, "");
    }
    let other_sources = json!({"header": "X-Token", "query": "t", "cookie": "c"});
    for request in [
        format!("GET / HTTP/1.1\nX-Token: Bearer {token}"),
        format!("GET /?t={token} HTTP/1.1"),
        format!("GET / HTTP/1.1\nCookie: c={token}"),
    ] {
        check(other_sources.clone(), &request, "");
    }
    check(other_sources, &format!("GET / HTTP/1.1\nAuthorization: {token}"), "Missing JWT token in request");
}

#[test]
fn invalid_tokens_are_refused_with_the_reason() {
    let show = |token: &str| format!("GET / HTTP/1.1\nAuthorization: Bearer {token}");
    check(json!({}), "GET / HTTP/1.1", "Missing JWT token in request");
    for broken in ["x", "a.b", "a.b.c", "e30.e30.", "bnVsbA.bnVsbA.x", "!.e30.x"] {
        check(json!({}), &show(broken), "JWT token invalid");
    }
    let header = json!({"alg": "HS256"});
    let good = json!({"key": "user-key"});
    for (header, claims, refusal) in [
        (header.clone(), json!({"sub": "user-key"}), "missing user key in JWT token"),
        (header.clone(), json!({"key": 7}), "missing user key in JWT token"),
        (header.clone(), json!({"key": "other"}), "Invalid user key in JWT token"),
        (json!({"alg": "HS512"}), good.clone(), "failed to verify jwt"),
        (json!({"alg": "none"}), good.clone(), "failed to verify jwt"),
        (json!({"alg": "RS256"}), good.clone(), "failed to verify jwt"),
        (json!({"alg": "HS256", "crit": ["x"]}), good.clone(), "JWT token invalid"),
        (json!({}), good.clone(), "JWT token invalid"),
    ] {
        check(json!({}), &show(&token(&header, &claims, hs256(b"my-secret"))), refusal);
    }
    check(json!({}), &show(&token(&header, &good, hs256(b"another"))), "failed to verify jwt");
    check(json!({}), &show(&token(&json!({"alg": "none"}), &good, |_| Vec::new())), "failed to verify jwt");
    let subject = of_alice(json!({"sub": "user-key"}));
    check(json!({"key_claim_name": "sub"}), &show(&subject), "");
}

#[test]
fn times_hold_where_they_are_said_or_asked_for() {
    const LATE: &str = "failed to verify jwt";
    for (claims, settings, refusal) in [
        (json!({"exp": NOW_S + 1}), json!({}), ""),
        (json!({"exp": NOW_S}), json!({}), LATE),
        (json!({"exp": "soon"}), json!({}), LATE),
        (json!({"nbf": NOW_S}), json!({}), ""),
        (json!({"nbf": NOW_S + 1}), json!({}), LATE),
        (json!({}), json!({"claims_to_verify": ["exp"]}), LATE),
        (json!({"exp": NOW_S + 1}), json!({"claims_to_verify": ["exp"]}), ""),
        (json!({"exp": NOW_S + 1}), json!({"claims_to_verify": ["exp", "nbf"]}), LATE),
        (json!({"exp": NOW_S + 1, "nbf": NOW_S + 9}), json!({"claims_to_verify": ["exp"]}), ""),
    ] {
        let mut claims = claims;
        claims["key"] = json!("user-key");
        let request = format!("GET / HTTP/1.1\nAuthorization: {}", of_alice(claims));
        check(settings, &request, refusal);
    }
    let lenient = json!({"key": "user-key", "secret": "my-secret", "lifetime_grace_period": 10});
    let late = of_alice(json!({"key": "user-key", "exp": NOW_S - 9}));
    let request = format!("GET / HTTP/1.1\nAuthorization: {late}");
    assert_eq!(run_with(lenient, json!({}), &request).status, 200);
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----", STANDARD.encode(der))
}

/// Checks that a token with this algorithm is valid, and that changing a claim invalidates it.
#[track_caller]
fn check_public(algorithm: &str, public: &[u8], sign: impl Fn(&[u8]) -> Vec<u8>) {
    let consumer = json!({"key": "user-key", "algorithm": algorithm, "public_key": pem(public)});
    let good = token(&json!({"alg": algorithm}), &json!({"key": "user-key"}), sign);
    let changed = URL_SAFE_NO_PAD.encode(json!({"key": "user-key", "admin": true}).to_string());
    let parts: Vec<&str> = good.split('.').collect();
    let forged = format!("{}.{changed}.{}", parts[0], parts[2]);
    for (token, status) in [(&good, 200), (&forged, 401)] {
        let request = format!("GET / HTTP/1.1\nAuthorization: {token}");
        assert_eq!(run_with(consumer.clone(), json!({}), &request).status, status, "{algorithm}");
    }
}

#[test]
fn every_algorithm_is_verified() {
    let random = SystemRandom::new();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).expect("a key");
    let rsa_der: PublicKeyX509Der<'_> = rsa.public_key().as_der().expect("DER");
    let algorithms: [(&str, &dyn signature::RsaEncoding); 6] = [
        ("RS256", &signature::RSA_PKCS1_SHA256),
        ("RS384", &signature::RSA_PKCS1_SHA384),
        ("RS512", &signature::RSA_PKCS1_SHA512),
        ("PS256", &signature::RSA_PSS_SHA256),
        ("PS384", &signature::RSA_PSS_SHA384),
        ("PS512", &signature::RSA_PSS_SHA512),
    ];
    for (name, padding) in algorithms {
        check_public(name, rsa_der.as_ref(), |text| {
            let mut signature = vec![0; rsa.public_modulus_len()];
            rsa.sign(padding, &random, text, &mut signature).expect("signed");
            signature
        });
    }
    for (name, algorithm) in [
        ("ES256", &signature::ECDSA_P256_SHA256_FIXED_SIGNING),
        ("ES384", &signature::ECDSA_P384_SHA384_FIXED_SIGNING),
        ("ES512", &signature::ECDSA_P521_SHA512_FIXED_SIGNING),
    ] {
        let pair = EcdsaKeyPair::generate(algorithm).expect("a key");
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("DER");
        check_public(name, der.as_ref(), |text| pair.sign(&random, text).expect("signed").as_ref().to_vec());
    }
    let pair = Ed25519KeyPair::generate().expect("a key");
    let der: PublicKeyX509Der<'_> = pair.public_key().as_der().expect("DER");
    check_public("EdDSA", der.as_ref(), |text| pair.sign(text).as_ref().to_vec());
    for (name, algorithm) in [("HS384", hmac::HMAC_SHA384), ("HS512", hmac::HMAC_SHA512)] {
        let key = hmac::Key::new(algorithm, b"bytes");
        let token = token(&json!({"alg": name}), &json!({"key": "user-key"}), |text| {
            hmac::sign(&key, text).as_ref().to_vec()
        });
        let consumer =
            json!({"key": "user-key", "algorithm": name, "secret": "Ynl0ZXM=", "base64_secret": true});
        let request = format!("GET / HTTP/1.1\nAuthorization: {token}");
        assert_eq!(run_with(consumer, json!({}), &request).status, 200, "{name}");
    }
}

#[test]
fn anonymous_consumer_is_used_and_tokens_can_be_hidden() {
    let token = of_alice(json!({"key": "user-key"}));
    let hide = || json!({"hide_credentials": true});
    let reply = run(hide(), &format!("GET / HTTP/1.1\nAuthorization: Bearer {token}"));
    assert_eq!(reply.upstream_field("Authorization"), None);
    assert_eq!(run(hide(), &format!("GET /a?x=1&jwt={token} HTTP/1.1")).upstream_line(), "GET /a?x=1");
    let reply = run(hide(), &format!("GET / HTTP/1.1\nCookie: a=b; jwt={token}; c=d"));
    assert_eq!(reply.upstream_field("Cookie").as_deref(), Some("a=b; c=d"));
    let reply = run(hide(), &format!("GET / HTTP/1.1\nCookie: jwt={token}"));
    assert_eq!(reply.upstream_field("Cookie"), None);
    let reply = run(json!({"anonymous_consumer": "nobody"}), "GET / HTTP/1.1\nAuthorization: x");
    assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some("nobody"));
}

#[test]
fn keys_that_verify_nothing_are_refused() {
    let bench = PluginBench::new();
    let refusal = |settings: Value| bench.credentials("jwt-auth", settings).err().map(|error| error.message);
    for (settings, part) in [
        (json!({"secret": "x"}), "property \"key\" is required"),
        (json!({"key": "k"}), "property \"secret\" is required when \"algorithm\" is \"HS256\""),
        (json!({"key": "k", "secret": "!", "base64_secret": true}), "not in base64 format"),
        (json!({"key": "k", "algorithm": "XS256"}), "algorithm"),
        (json!({"key": "k", "algorithm": "RS256"}), ""),
        (json!({"key": "k", "algorithm": "RS256", "public_key": "x"}), "not a public key in PEM"),
        (json!({"key": "k", "algorithm": "ES256", "public_key": pem(b"x")}), "not a key for ES256"),
    ] {
        let message = refusal(settings.clone()).unwrap_or_else(|| panic!("{settings} is taken"));
        assert!(message.contains(part), "{settings}: {message}");
    }
    assert_eq!(refusal(json!({"key": "k", "secret": "s"})), None);
}

#[test]
fn key_is_found_in_the_jose_header_without_the_claim() {
    let header = json!({"alg": "HS256", "kid": "user-key"});
    let signed = |claims: Value| token(&header, &claims, hs256(b"my-secret"));
    let settings = json!({"key_claim_name": "kid"});
    let request = |token: String| format!("GET / HTTP/1.1\nAuthorization: {token}");
    check(settings.clone(), &request(signed(json!({}))), "");
    // The claim precedes the header.
    check(settings, &request(signed(json!({"kid": "other"}))), "Invalid user key in JWT token");
}

#[test]
fn empty_name_turns_its_place_off() {
    let token = of_alice(json!({"key": "user-key"}));
    let missing = "Missing JWT token in request";
    for (place, request) in [
        ("header", format!("GET / HTTP/1.1\nAuthorization: {token}")),
        ("query", format!("GET /?jwt={token} HTTP/1.1")),
        ("cookie", format!("GET / HTTP/1.1\nCookie: jwt={token}")),
        ("query", format!("GET /?={token} HTTP/1.1")),
        ("cookie", format!("GET / HTTP/1.1\nCookie: ={token}")),
    ] {
        check(json!({place: ""}), &request, missing);
    }
}

#[test]
fn token_that_lives_too_long_is_refused() {
    let settings = json!({"maximum_expiration": 60});
    let unverified = "failed to verify jwt";
    for (claims, refusal) in [
        (json!({"key": "user-key", "exp": NOW_S + 60}), ""),
        (json!({"key": "user-key", "exp": NOW_S + 61}), unverified),
        (json!({"key": "user-key", "exp": NOW_S - 1}), unverified),
        (json!({"key": "user-key"}), unverified),
    ] {
        let request = format!("GET / HTTP/1.1\nAuthorization: {}", of_alice(claims));
        check(settings.clone(), &request, refusal);
    }
}
