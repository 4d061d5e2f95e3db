//! Admission by address, password and authorization service.

use serde_json::{Value, json};

use crate::testing::guard::{CannedAnswer, judged};

/// `ada:secret`, with `{SHA}`, which is verified at once.
const FILE: &str = "ada:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

/// `Authorization` with `ada:secret` and with `ada:wrong`.
const RIGHT: &str = "\nAuthorization: Basic YWRhOnNlY3JldA==";
const WRONG: &str = "\nAuthorization: Basic YWRhOndyb25n";

/// Checks the status of a request with these fields; 0 admits it. The client is 192.0.2.7.
fn check(actions: Value, fields: &str, service: Option<u16>, expected: u16) {
    let answer = service.map_or(CannedAnswer::Fault, |status| CannedAnswer::Status(status, Vec::new()));
    let judged = judged(actions.clone(), &format!("GET /\nHost: a{fields}"), answer);
    assert_eq!(judged.refused.map_or(0, |(status, _)| status), expected, "{actions} {fields:?} {service:?}");
}

#[test]
fn addresses_are_refused_before_they_are_admitted() {
    for (access, expected) in [
        (json!({ "allow": ["192.0.2.0/24"] }), 0),
        (json!({ "allow": ["198.51.100.0/24"] }), 403),
        (json!({ "deny": ["192.0.2.7"] }), 403),
        (json!({ "allow": ["192.0.2.0/24"], "deny": ["192.0.2.7"] }), 403),
        (json!({ "allow": ["192.0.2.0/24"], "deny": ["192.0.2.8"] }), 0),
    ] {
        check(json!({ "access": access }), "", None, expected);
    }
}

#[test]
fn all_rules_have_to_admit_a_request() {
    let actions = |network: &str| {
        json!({
            "access": { "allow": [network], "basic_auth_file": { "file": FILE } },
            "external_auth": { "upstream_id": "1", "nginx": { "url": "/auth" } },
        })
    };
    check(actions("192.0.2.0/24"), RIGHT, Some(200), 0);
    check(actions("192.0.2.0/24"), RIGHT, Some(403), 403);
    check(actions("192.0.2.0/24"), WRONG, Some(200), 401);
    check(actions("192.0.2.0/24"), "", Some(200), 401);
    check(actions("198.51.100.0/24"), RIGHT, Some(200), 403);
}

#[test]
fn one_rule_suffices_where_any_satisfies() {
    let actions = |network: &str| {
        json!({
            "access": { "satisfy": "any", "allow": [network], "basic_auth_file": { "file": FILE } },
            "external_auth": { "upstream_id": "1", "nginx": { "url": "/auth" } },
        })
    };
    let other = "198.51.100.0/24";
    check(actions("192.0.2.0/24"), "", None, 0);
    check(actions(other), RIGHT, None, 0);
    check(actions(other), WRONG, Some(204), 0);
    // The client may try again with credentials.
    check(actions(other), WRONG, Some(403), 401);
    check(actions(other), WRONG, Some(401), 401);
    // Without a decision the request is refused.
    check(actions(other), WRONG, None, 500);
    let lists =
        json!({ "access": { "satisfy": "any", "allow": [other], "basic_auth_file": { "file": FILE } } });
    check(lists.clone(), WRONG, None, 401);
    check(lists, RIGHT, None, 0);
}

#[test]
fn fields_of_the_service_are_never_the_clients() {
    let auth = json!({
        "upstream_id": "1",
        "allowed_response_headers": ["X-User"],
        "nginx": { "url": "/auth", "answer_fields": [["X-Role", "${upstream_http_x_group}"]] },
    });
    let spoofed = "GET /\nHost: a\nX-User: root\nx_role: admin\nX-Other: 1";
    for access in [
        json!({ "satisfy": "any", "allow": ["192.0.2.0/24"] }),
        json!({ "satisfy": "any", "allow": ["198.51.100.0/24"], "basic_auth_file": { "file": FILE } }),
        json!({ "satisfy": "any", "allow": ["198.51.100.0/24"] }),
    ] {
        let answer = CannedAnswer::Status(200, Vec::new());
        let judged =
            judged(json!({ "access": access, "external_auth": auth }), &format!("{spoofed}{RIGHT}"), answer);
        assert!(judged.refused.is_none(), "{access}");
        let sent: Vec<&String> =
            judged.request.iter().filter(|line| line.to_ascii_lowercase().starts_with('x')).collect();
        assert_eq!(sent, ["X-Other: 1"], "{access}");
    }
}
