//! CORS by the rules of the Gateway API.

use serde_json::{Value, json};

use crate::testing::run;

/// The fields of CORS in a response, sorted and without `Vary`.
fn fields(lines: &[String]) -> Vec<String> {
    let of_cors = lines.iter().filter_map(|line| line.strip_prefix("Access-Control-"));
    let mut fields: Vec<String> = of_cors.map(str::to_owned).collect();
    fields.sort();
    fields
}

/// Checks the fields of the response to a preflight request with further fields.
fn preflight(cors: &Value, origin: &str, more: &str, expected: &[&str]) {
    let request =
        format!("OPTIONS /x\nHost: a.example\nOrigin: {origin}\nAccess-Control-Request-Method: PUT{more}");
    let answered = run(80, json!({ "cors": cors }), &request, &[]).answered;
    let (status, lines) = answered.unwrap_or_else(|| panic!("{cors}: the preflight request went on"));
    assert_eq!(
        (status, fields(&lines)),
        (204, expected.iter().map(|one| (*one).to_owned()).collect()),
        "{cors} {origin}"
    );
}

/// Checks the fields of an actual response of an upstream with fields of its own.
fn actual(cors: &Value, origin: &str, expected: &[&str]) {
    let request = format!("GET /x\nHost: a.example\nOrigin: {origin}");
    let outcome = run(80, json!({ "cors": cors }), &request, &[("X-Own", "1"), ("Content-Type", "a/b")]);
    assert!(outcome.answered.is_none(), "{cors}");
    assert_eq!(fields(&outcome.response), expected, "{cors} {origin}");
}

#[test]
fn origins_match_exactly_or_below_a_wildcard() {
    let cors =
        json!({ "allow_origins": ["https://www.foo.com", "https://*.bar.com", "http://*.port.com:8080"] });
    for (origin, is_allowed) in [
        ("https://www.foo.com", true),
        ("HTTPS://WWW.FOO.COM", true),
        ("http://www.foo.com", false),
        ("https://foo.com", false),
        ("https://www.foo.com:8443", false),
        ("https://a.bar.com", true),
        ("https://a.b.bar.com", true),
        ("https://bar.com", false),
        ("https://evilbar.com", false),
        ("https://evil.com:1.bar.com", false),
        ("https://a.bar.com.evil.com", false),
        ("http://x.port.com:8080", true),
        ("http://x.port.com", false),
        ("null", false),
    ] {
        let allowed = format!("Allow-Origin: {origin}");
        let expected: Vec<&str> = is_allowed.then_some(&*allowed).into_iter().collect();
        actual(&cors, origin, &expected);
    }
}

#[test]
fn without_credentials_a_star_stays_a_star() {
    let cors = json!({ "allow_origins": ["*"], "allow_methods": ["*"], "allow_headers": ["*"], "expose_headers": ["*"] });
    preflight(
        &cors,
        "https://a.com",
        "\nAccess-Control-Request-Headers: x-a",
        &["Allow-Headers: *", "Allow-Methods: *", "Allow-Origin: *", "Expose-Headers: *", "Max-Age: 5"],
    );
    actual(&cors, "https://a.com", &["Allow-Origin: *", "Expose-Headers: *"]);
}

#[test]
fn with_credentials_the_request_is_echoed_in_place_of_a_star() {
    let cors = json!({
        "allow_origins": ["*"], "allow_methods": ["*"], "allow_headers": ["*"], "expose_headers": ["*"],
        "allow_credentials": true, "max_age": 3600,
    });
    preflight(
        &cors,
        "https://a.com",
        "\nAccess-Control-Request-Headers: x-a, x-b",
        &[
            "Allow-Credentials: true",
            "Allow-Headers: x-a, x-b",
            "Allow-Methods: PUT",
            "Allow-Origin: https://a.com",
            "Max-Age: 3600",
        ],
    );
    preflight(
        &cors,
        "https://a.com",
        "",
        &["Allow-Credentials: true", "Allow-Methods: PUT", "Allow-Origin: https://a.com", "Max-Age: 3600"],
    );
    let expected = ["Allow-Credentials: true", "Allow-Origin: https://a.com", "Expose-Headers: X-Own, Vary"];
    actual(&cors, "https://a.com", &expected);
}

#[test]
fn lists_are_sent_as_they_are_written() {
    let cors = json!({
        "allow_origins": ["https://a.com"], "allow_methods": ["GET", "PUT"], "allow_headers": ["X-A", "X-B"],
        "expose_headers": ["X-C"],
    });
    preflight(
        &cors,
        "https://a.com",
        "",
        &[
            "Allow-Headers: X-A, X-B",
            "Allow-Methods: GET, PUT",
            "Allow-Origin: https://a.com",
            "Expose-Headers: X-C",
            "Max-Age: 5",
        ],
    );
    actual(&cors, "https://a.com", &["Allow-Origin: https://a.com", "Expose-Headers: X-C"]);
}

#[test]
fn a_preflight_request_of_another_origin_gets_no_fields() {
    preflight(&json!({ "allow_origins": ["https://a.com"] }), "https://b.com", "", &[]);
    preflight(&json!({}), "https://b.com", "", &[]);
}

#[test]
fn other_options_requests_go_on() {
    let cors = json!({ "cors": { "allow_origins": ["*"] } });
    for request in ["OPTIONS /\nHost: a", "OPTIONS /\nHost: a\nOrigin: https://a.com"] {
        assert!(run(80, cors.clone(), request, &[]).answered.is_none(), "{request}");
    }
}

#[test]
fn responses_vary_by_origin_unless_all_are_equal() {
    for (cors, varies) in [
        (json!({ "allow_origins": ["*"] }), false),
        (json!({ "allow_origins": ["*"], "allow_credentials": true }), true),
        (json!({ "allow_origins": ["https://a.com"] }), true),
    ] {
        let outcome = run(80, json!({ "cors": cors }), "GET /\nHost: a", &[]);
        assert_eq!(outcome.response.contains(&"Vary: Origin".to_owned()), varies, "{cors}");
    }
}
