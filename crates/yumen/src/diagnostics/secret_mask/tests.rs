use super::*;

fn shown(text: &str, number: u32, object: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let problem = Problem::error(object, "", "");
    visible(&lines, number, &problem, |length| 0..length).map(|characters| characters.into_iter().collect())
}

fn check(text: &str, number: u32, object: &str, expected: Option<&str>) {
    assert_eq!(shown(text, number, object).as_deref(), expected, "{text}");
}

#[test]
fn secrets_are_masked_by_their_names() {
    check("  redis_password: open, sesame", 1, "routes/1", Some("  redis_password: ************"));
    check(
        "{\"client_secret\": \"a:b\", \"n\": 1}",
        1,
        "routes/1",
        Some("{\"client_secret\": *****, \"n\": 1}"),
    );
    check("uri: http://u:pw@a.test", 1, "routes/1", Some("uri: ******************"));
    check("uri: /push?sig=ab", 1, "routes/1", Some("uri: ************"));
    check("{ token: abc, count: 2 }", 1, "routes/1", Some("{ token: ***, count: 2 }"));
    check("plugins: { key-auth: { key: x } }", 1, "consumers/a", Some("plugins: { key-auth: { key: * } }"));
}

#[test]
fn the_key_of_a_limit_is_shown() {
    for line in [
        "limit-count: { key: remote_addr }",
        "secure: yes",
        "  scheme: https",
        "- uri: /a#b",
        "upstream: { type: chash, key: x, nodes: {} }",
        "forward-auth: { uri: htp://a }",
    ] {
        check(line, 1, "routes/1", Some(line));
    }
}

#[test]
fn lines_of_private_keys_are_hidden() {
    let text = "key: |\n  -----BEGIN PRIVATE KEY-----\n  MIIE\n  -----END PRIVATE KEY-----\nsni: a.test";
    check(text, 2, "ssls/1", None);
    check(text, 3, "ssls/1", None);
    check(text, 5, "ssls/1", Some("sni: a.test"));
    check("-----BEGIN CERTIFICATE-----\nMIIC", 2, "ssls/1", Some("MIIC"));
}

/// Asserts that no line of a document shows `s3cr3t`, in any object.
fn check_hidden(object: &str, text: &str) {
    for number in 1..=text.lines().count() {
        let line = shown(text, u32::try_from(number).unwrap(), object).unwrap_or_default();
        assert!(!line.contains("s3cr3t"), "{line}\nof {text}");
    }
}

#[test]
fn secrets_are_masked_in_every_shape_and_under_misspelt_names() {
    let of_consumers = [
        "key-auth: s3cr3t",
        "key-auth: { key: [s3cr3t] }",
        "jwt-auth: { key: ann, secret: { v: s3cr3t } }",
        "jwt-auth: { secret: [a, s3cr3t] , key: s3cr3t}",
        "basic-auth: { pasword: s3cr3t }",
        "key-auth: { kye: s3cr3t }",
        "key-auth: { s3cr3t }",
        "key-auht: { key: s3cr3t }",
        "key-auth:\n        key: s3cr3t: value",
        "key-auth:\n        key: \"s3cr3t\"x",
        "key-auth:\n        key: |\n          s3cr3t",
        "key-auth:\n        key: >-\n\n          s3cr3t",
        "key-auth:\n        key\n          s3cr3t",
        "key-auth:\n        key:\n        - s3cr3t",
        "key-auth:\n        kye: s3cr3t # and s3cr3t",
        "key-auth: {\n        \"key\":\n \"s3cr3t\" }",
        "jwt-auth: {key: ann, secret: %s3cr3t}",
    ];
    for settings in of_consumers {
        let text = format!("consumers:\n  - username: ann\n    plugins:\n      {settings}\n");
        check_hidden("consumers/ann", &text);
        // A fault of syntax belongs to no object.
        check_hidden("file", &text);
    }
    check_hidden("consumers[0]", "consumers:\n  - s3cr3t");
    check_hidden("consumers[0]", "consumers:\n- s3cr3t");
    for settings in [
        "limit-count: { redis_password: {a: s3cr3t} }",
        "limit-count: { redis_pasword: s3cr3t }",
        "limit-count:\n        redis-pasword:\n          - s3cr3t",
        "openid-connect: { client_secret: [s3cr3t], discovery: s3cr3t }",
        "hmac-auth: { algorithm: s3cr3t }",
    ] {
        check_hidden("routes/r", &format!("routes:\n  - id: r\n    plugins:\n      {settings}\n"));
    }
    check_hidden("secrets/vault/1", "secrets:\n  - id: vault/1\n    uri: s3cr3t\n    tokn: s3cr3t");
    check_hidden("ssls/1", "ssls:\n  - id: 1\n    key: s3cr3t\n    keys: [s3cr3t]\n    kye: s3cr3t");
    check_hidden("yumen.yaml", "admin:\n  keys:\n    - name: a\n      key: [s3cr3t]\n      kye: s3cr3t");
    check_hidden("yumen.yaml", "admin: { keys: [{ name: a, key: { s3cr3t } }] }");
}

#[test]
fn the_end_of_a_long_line_is_masked_by_the_path_of_the_problem() {
    let text = format!("{{\"consumers\":[{{\"desc\":\"{}\",\"x\":\"s3cr3t\"}}]}}", "y".repeat(20_000));
    let problem = Problem::error("consumers/a", "plugins.key-auth", "");
    let found = visible(&[&text], 1, &problem, |length| length - 40..length).unwrap();
    assert!(!found.into_iter().collect::<String>().contains("s3cr3t"));
}
