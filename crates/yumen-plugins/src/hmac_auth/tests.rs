use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use yumen_plugin::{DryRunResult, PhaseSet};

use crate::testing::{PluginBench, TestReply};

/// The time of the test clock.
const NOW: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

/// An `Authorization` field that signs these lines.
fn authorization(algorithm: &str, headers: &str, lines: &str) -> String {
    let kind = match algorithm {
        "hmac-sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "hmac-sha512" => hmac::HMAC_SHA512,
        _ => hmac::HMAC_SHA256,
    };
    let tag = hmac::sign(&hmac::Key::new(kind, b"the-secret"), format!("alices-key\n{lines}").as_bytes());
    let signature = STANDARD.encode(tag);
    format!(
        "Authorization: Signature keyId=\"alices-key\",algorithm=\"{algorithm}\",headers=\"{headers}\",signature=\"{signature}\""
    )
}

fn run(settings: Value, request: &str) -> TestReply {
    let mut bench = PluginBench::new();
    let alice = bench.add_consumer("alice");
    bench.add_key(&alice, "hmac-auth", json!({"key_id": "alices-key", "secret_key": "the-secret"}), None);
    bench.add_consumer("nobody");
    let plugin = bench.plugin("hmac-auth", settings);
    bench.run(&plugin, request)
}

#[track_caller]
fn check(settings: Value, request: &str, expected: Result<&str, &str>) {
    let reply = run(settings.clone(), request);
    match expected {
        Ok(username) => {
            assert_eq!(reply.status, 200, "{settings} {request}: {reply:?}");
            assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some(username));
        }
        Err(message) => {
            assert_eq!(reply.body, format!("{{\"message\":\"{message}\"}}\n"), "{settings} {request}");
            assert_eq!(reply.field("WWW-Authenticate").as_deref(), Some("hmac realm=\"hmac\""));
        }
    }
}

const INVALID: Result<&str, &str> = Err("client request can't be validated");

#[test]
fn a_signature_tells_who_asks() {
    let lines = format!("GET /a?b=c\ndate: {NOW}\nx-custom: yes\n");
    for algorithm in ["hmac-sha1", "hmac-sha256", "hmac-sha512"] {
        let signed = authorization(algorithm, "@request-target date x-custom", &lines);
        let rest = format!("Date: {NOW}\nX-Custom: yes\n{signed}");
        check(json!({}), &format!("GET /a?b=c HTTP/1.1\n{rest}"), Ok("alice"));
        // A different method, target, date or field invalidates the signature.
        check(json!({}), &format!("PUT /a?b=c HTTP/1.1\n{rest}"), INVALID);
        check(json!({}), &format!("GET /a?b=d HTTP/1.1\n{rest}"), INVALID);
        check(json!({}), &format!("GET /a?b=c HTTP/1.1\n{}", rest.replace(":20 GMT", ":21 GMT")), INVALID);
        check(json!({}), &format!("GET /a?b=c HTTP/1.1\n{}", rest.replace("yes", "no")), INVALID);
        check(
            json!({"allowed_algorithms": ["hmac-sha512"]}),
            &format!("GET /a?b=c HTTP/1.1\n{rest}"),
            if algorithm == "hmac-sha512" { Ok("alice") } else { INVALID },
        );
    }
}

#[test]
fn a_target_is_signed_as_it_is_sent_or_decoded_as_in_apisix() {
    let signed = |target: &str| {
        let lines = format!("GET {target}\ndate: {NOW}\n");
        format!("Date: {NOW}\n{}", authorization("hmac-sha256", "@request-target date", &lines))
    };
    for (sent, signs, expected) in [
        ("/a%20b?c=%20", "/a%20b?c=%20", Ok("alice")),
        ("/a%20b?c=%20", "/a b?c=%20", Ok("alice")),
        ("/a%20b?c=%20", "/a b?c= ", INVALID),
        // A signature for one path is invalid for another.
        ("/a%3Fb", "/a?b", INVALID),
        ("/a%2541", "/a%41", INVALID),
        ("/a%0Adate:%20b", "/a\ndate: b", INVALID),
    ] {
        check(json!({}), &format!("GET {sent} HTTP/1.1\n{}", signed(signs)), expected);
    }
}

#[test]
fn invalid_signatures_are_refused_with_the_reason() {
    let start = "client request can't be validated: ";
    let missing = format!("{start}missing Authorization header");
    check(json!({}), "GET / HTTP/1.1", Err(&missing));
    let other = format!("{start}Authorization header does not start with 'Signature'");
    check(json!({}), "GET / HTTP/1.1\nAuthorization: Basic abc", Err(&other));
    let date = format!("date: {NOW}\n");
    let good = authorization("hmac-sha256", "date", &date);
    for (from, to) in [
        ("alices-key", "bobs-key"),
        ("hmac-sha256", "md5"),
        ("hmac-sha256", ""),
        ("signature=\"", "signature=\"!"),
        ("signature=\"", "signature=\"\",x=\""),
        ("headers=\"date\"", "headers=\"\""),
    ] {
        let request = format!("GET / HTTP/1.1\nDate: {NOW}\n{}", good.replace(from, to));
        check(json!({}), &request, INVALID);
    }
    check(json!({}), &format!("GET / HTTP/1.1\nDate: {NOW}\n{good}"), Ok("alice"));
}

#[test]
fn the_clock_may_be_off_as_far_as_the_settings_say() {
    for (date, skew, expected) in [
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60, Ok("alice")),
        ("Tue, 14 Nov 2023 22:14:21 GMT", 60, INVALID),
        ("Tue, 14 Nov 2023 22:12:20 GMT", 60, Ok("alice")),
        ("Tue, 14 Nov 2023 22:12:19 GMT", 60, INVALID),
        ("yesterday", 60, INVALID),
    ] {
        let signed = authorization("hmac-sha256", "date", &format!("date: {date}\n"));
        check(json!({"clock_skew": skew}), &format!("GET / HTTP/1.1\nDate: {date}\n{signed}"), expected);
    }
    let signed = authorization("hmac-sha256", "", "");
    check(json!({"signed_headers": []}), &format!("GET / HTTP/1.1\n{signed}"), INVALID);
}

#[test]
fn the_body_is_held_to_its_digest_where_asked() {
    let settings = || json!({"validate_request_body": true, "signed_headers": ["date", "digest"]});
    let sum = format!("SHA-256={}", STANDARD.encode(digest(&SHA256, b"hello")));
    let signed = authorization("hmac-sha256", "date digest", &format!("date: {NOW}\ndigest: {sum}\n"));
    let head = format!("POST / HTTP/1.1\nDate: {NOW}\nDigest: {sum}\n{signed}");
    check(settings(), &format!("{head}\n\nhello"), Ok("alice"));
    check(settings(), &format!("{head}\n\nhullo"), INVALID);
    let undigested = authorization("hmac-sha256", "date", &format!("date: {NOW}\n"));
    let request = format!("POST / HTTP/1.1\nDate: {NOW}\n{undigested}\n\nhello");
    check(json!({"validate_request_body": true}), &request, INVALID);
    // An unsigned digest proves nothing, because it can be replaced together with the body.
    let request = format!("POST / HTTP/1.1\nDate: {NOW}\nDigest: {sum}\n{undigested}\n\nhello");
    check(json!({"validate_request_body": true}), &request, INVALID);
    check(json!({}), &request, Ok("alice"));
    check(json!({"validate_request_body": true}), &format!("{head}\n\nhello"), Ok("alice"));
    let small = json!({"validate_request_body": true, "max_req_body_size": 4});
    assert_eq!(run(small, &format!("{head}\n\nhello")).status, 413);
}

#[test]
fn anonymous_consumer_is_used_and_signatures_can_be_hidden() {
    let settings = json!({"anonymous_consumer": "nobody", "hide_credentials": true});
    check(settings.clone(), "GET / HTTP/1.1", Ok("nobody"));
    let signed = authorization("hmac-sha256", "date", &format!("date: {NOW}\n"));
    let reply = run(settings, &format!("GET / HTTP/1.1\nDate: {NOW}\n{signed}"));
    assert_eq!(reply.upstream_field("X-Consumer-Username").as_deref(), Some("alice"));
    assert_eq!(reply.upstream_field("Authorization"), None);
    check(json!({"anonymous_consumer": "missing"}), "GET / HTTP/1.1", Err("Invalid user authorization"));
}

/// A harness with one consumer.
fn bench() -> PluginBench {
    let mut bench = PluginBench::new();
    let alice = bench.add_consumer("alice");
    bench.add_key(&alice, "hmac-auth", json!({"key_id": "alices-key", "secret_key": "the-secret"}), None);
    bench
}

/// A request with a nonce, signed or unsigned.
fn with_nonce(nonce: &str, is_signed: bool) -> String {
    let lines = format!("date: {NOW}\n");
    let signed = match is_signed {
        true => authorization("hmac-sha256", "date X-Nonce", &format!("{lines}X-Nonce: {nonce}\n")),
        false => authorization("hmac-sha256", "date", &lines),
    };
    format!("GET / HTTP/1.1\nDate: {NOW}\nX-Nonce: {nonce}\n{signed}")
}

#[test]
fn a_signed_nonce_admits_one_request() {
    let bench = bench();
    let plugin = bench.plugin("hmac-auth", json!({}));
    let status = |request: &str| bench.run(&plugin, request).status;
    assert_eq!([(); 3].map(|()| status(&with_nonce("one", true))), [200, 401, 401]);
    assert_eq!(status(&with_nonce("two", true)), 200);
    assert_eq!([(); 2].map(|()| status(&with_nonce("three", false))), [200, 200], "it is not signed");
    let forged = with_nonce("four", true).replace("signature=\"", "signature=\"AAAA");
    assert_eq!(status(&forged), 401);
    assert_eq!(status(&with_nonce("four", true)), 200, "a forged request uses up no nonce");
    let long = "n".repeat(2000);
    assert_eq!([(); 2].map(|()| status(&with_nonce(&long, true))), [200, 401]);
}

#[test]
fn a_nonce_is_kept_as_long_as_its_date_is_accepted() {
    let bench = bench();
    let plugin = bench.plugin("hmac-auth", json!({"clock_skew": 60}));
    let status = || bench.run(&plugin, &with_nonce("one", true)).status;
    assert_eq!(status(), 200);
    for _ in 0..7 {
        bench.host.advance(Duration::from_secs(10));
        assert_eq!(status(), 401);
    }
}

#[test]
fn a_nonce_can_be_mandatory_and_of_another_field() {
    let bench = bench();
    let settings = json!({"nonce_header": "X-Request-Nonce", "signed_headers": ["date", "x-request-nonce"]});
    let plugin = bench.plugin("hmac-auth", settings);
    let request = |field: &str| {
        let lines = format!("date: {NOW}\nx-request-nonce: one\n");
        let lines = if field.is_empty() { format!("date: {NOW}\n") } else { lines };
        let signed = authorization("hmac-sha256", "date x-request-nonce", &lines);
        format!("GET / HTTP/1.1\nDate: {NOW}\n{field}{signed}")
    };
    let status = |field: &str| bench.run(&plugin, &request(field)).status;
    assert_eq!(status(""), 401, "a field that is not there is no nonce");
    assert_eq!([(); 2].map(|()| status("X-Request-Nonce: one\n")), [200, 401]);
}

#[test]
fn a_body_that_is_waited_for_does_not_use_up_the_nonce() {
    let bench = bench();
    let plugin = bench.plugin("hmac-auth", json!({"validate_request_body": true}));
    let sum = format!("SHA-256={}", STANDARD.encode(digest(&SHA256, b"hello")));
    let lines = format!("date: {NOW}\ndigest: {sum}\nx-nonce: one\n");
    let signed = authorization("hmac-sha256", "date digest x-nonce", &lines);
    let head = format!("POST / HTTP/1.1\nDate: {NOW}\nDigest: {sum}\nX-Nonce: one\n{signed}");
    let status = |body: &str| bench.run(&plugin, &format!("{head}\n\n{body}")).status;
    assert_eq!([status("hullo"), status("hello"), status("hello")], [401, 200, 401]);
}

#[test]
fn nonces_outlive_the_plugin_and_the_process() {
    let (old, new) = (bench(), bench());
    let of_old = old.plugin("hmac-auth", json!({}));
    assert_eq!(old.run(&of_old, &with_nonce("one", true)).status, 200);
    let changed = old.plugin("hmac-auth", json!({"clock_skew": 200}));
    assert_eq!(old.run(&changed, &with_nonce("one", true)).status, 401);
    let of_new = new.plugin("hmac-auth", json!({}));
    new.carry.take_over(&old.carry.export(), new.host.now());
    assert_eq!(new.run(&of_new, &with_nonce("one", true)).status, 401);
}

#[test]
fn a_request_that_is_thought_through_uses_up_no_nonce() {
    let bench = bench();
    let plugin = bench.plugin("hmac-auth", json!({}));
    let request = with_nonce("one", true);
    for _ in 0..2 {
        let dry_run = plugin.dry_run(PhaseSet::REWRITE, &mut bench.exchange(&request));
        assert!(matches!(dry_run, DryRunResult::Continue), "{dry_run:?}");
    }
    assert_eq!(bench.run(&plugin, &request).status, 200);
    let dry_run = plugin.dry_run(PhaseSet::REWRITE, &mut bench.exchange(&request));
    assert!(matches!(dry_run, DryRunResult::Respond(_)), "{dry_run:?}");
}
