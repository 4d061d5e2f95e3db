//! Fields of requests after the action.

use serde_json::json;

use crate::testing::run;

/// Checks the fields of a request with these further fields.
fn check(port: u16, form: &str, fields: &str, expected: &[&str]) {
    let request = format!("GET /\nHost: a.example:8080{fields}");
    let outcome = run(port, json!({ "forwarded_fields": form }), &request, &[]);
    let is_id = |line: &&String| !line.starts_with("X-Request-ID") && !line.starts_with("Host");
    let found: Vec<&String> = outcome.fields.iter().filter(is_id).collect();
    assert_eq!(found, expected, "{fields}");
    let id = outcome.fields.iter().find_map(|line| line.strip_prefix("X-Request-ID: "));
    assert!(id.is_some_and(|id| id == "mine" || id.len() == 32), "{id:?}");
}

#[test]
fn a_request_gets_the_fields_of_ingress_nginx() {
    let own = ["X-Forwarded-Host: a.example:8080", "X-Forwarded-Port: 8080"];
    let scheme = ["X-Forwarded-Proto: http", "X-Forwarded-Scheme: http", "X-Scheme: http"];
    check(
        8080,
        "nginx",
        "\nProxy: evil\nX_Scheme: https",
        &[own, [scheme[0], scheme[1]]].concat().into_iter().chain([scheme[2]]).collect::<Vec<_>>(),
    );
}

#[test]
fn addresses_of_the_client_move_to_another_field() {
    let fields = "\nX-Forwarded-For: 1.1.1.1\nX-Forwarded-For: 2.2.2.2\nX-Original-Forwarded-Host: evil";
    let rest = [
        "X-Original-Forwarded-For: 1.1.1.1, 2.2.2.2",
        "X-Forwarded-Host: a.example:8080",
        "X-Forwarded-Port: 443",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Scheme: https",
        "X-Scheme: https",
    ];
    check(443, "nginx", fields, &rest);
    let kept = ["X-Forwarded-For: 1.1.1.1", "X-Forwarded-For: 2.2.2.2"];
    check(443, "nginx_append", fields, &kept.iter().chain(&rest).copied().collect::<Vec<_>>());
}

#[test]
fn values_of_a_trusted_proxy_and_a_request_id_stay() {
    let fields = "\nX-Forwarded-Proto: https\nX-Forwarded-Host: shop.example\nX-Forwarded-Port: 443\nX-Request-ID: mine";
    check(
        8080,
        "nginx",
        fields,
        &[
            "X-Forwarded-Host: shop.example",
            "X-Forwarded-Port: 443",
            "X-Original-Forwarded-Host: shop.example",
            "X-Forwarded-Proto: https",
            "X-Forwarded-Scheme: https",
            "X-Scheme: https",
        ],
    );
}
