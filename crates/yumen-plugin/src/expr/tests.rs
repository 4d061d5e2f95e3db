//! Tables of conditions: refused ones, and results for one request.

use serde_json::{Value, json};

use super::ConditionExpr;
use crate::test_exchange::with_exchange;

const REQUEST: &str = "\
GET /shop/cart?name=json&weight=20&empty=&bare&hex=0x10 HTTP/1.1
Host: shop.example
X-Tier: Gold
User-Agent: curl/8.5";

fn check(rules: Value, expected: bool) {
    let expr = ConditionExpr::parse(&rules).unwrap_or_else(|error| panic!("{rules}: {error}"));
    let result = with_exchange(false, REQUEST, |ex| expr.eval(ex));
    assert_eq!(result, expected, "{rules}");
}

fn check_refused(rules: Value, expected: &str) {
    match ConditionExpr::parse(&rules) {
        Ok(_) => panic!("{rules} was accepted"),
        Err(message) => assert_eq!(message, expected, "{rules}"),
    }
}

#[test]
fn equality_compares_text_and_converts_for_number_constants() {
    check(json!([["arg_name", "==", "json"]]), true);
    check(json!([["arg_name", "==", "xml"]]), false);
    check(json!([["arg_weight", "==", 20]]), true);
    check(json!([["arg_weight", "==", 20.0]]), true);
    check(json!([["arg_weight", "==", "20.0"]]), false);
    check(json!([["arg_hex", "==", 16]]), true);
    check(json!([["arg_name", "==", 20]]), false);
    check(json!([["arg_weight", "~=", 21]]), true);
    check(json!([["arg_weight", "~=", 20]]), false);
    check(json!([["arg_name", "~=", 20]]), true);
    check(json!([["arg_name", "==", true]]), false);
}

#[test]
fn an_absent_variable_equals_only_null() {
    check(json!([["arg_none", "==", "x"]]), false);
    check(json!([["arg_none", "~=", "x"]]), true);
    check(json!([["arg_none", "~=", 1]]), true);
    check(json!([["arg_none", "==", null]]), true);
    check(json!([["arg_none", "~=", null]]), false);
    check(json!([["arg_name", "==", null]]), false);
    check(json!([["arg_name", "~=", null]]), true);
    check(json!([["arg_none", "!", "==", "x"]]), true);
    check(json!([["arg_none", ">", 0]]), false);
    check(json!([["arg_none", "!", ">", 0]]), true);
    check(json!([["arg_none", "~~", ".*"]]), false);
    check(json!([["arg_none", "in", ["x"]]]), false);
    check(json!([["arg_empty", "==", ""]]), true);
    check(json!([["no_such_variable", "==", null]]), true);
}

#[test]
fn order_is_that_of_numbers_and_nothing_else() {
    check(json!([["arg_weight", ">", 10]]), true);
    check(json!([["arg_weight", ">", "9"]]), true);
    check(json!([["arg_weight", ">", 20]]), false);
    check(json!([["arg_weight", ">=", 20]]), true);
    check(json!([["arg_weight", "<", 20.5]]), true);
    check(json!([["arg_weight", "<", 20]]), false);
    check(json!([["arg_weight", "<=", 20]]), true);
    check(json!([["arg_name", ">", 1]]), false);
    check(json!([["arg_name", "<", 1]]), false);
    check(json!([["arg_name", "<", "zzz"]]), false);
    check(json!([["arg_weight", "<", "inf"]]), false);
    check(json!([["arg_weight", "<", null]]), false);
}

#[test]
fn regular_expressions_match_anywhere_with_the_given_case() {
    check(json!([["arg_name", "~~", "^js"]]), true);
    check(json!([["arg_name", "~~", "^JS"]]), false);
    check(json!([["arg_name", "~*", "^JS"]]), true);
    check(json!([["http_user_agent", "~~", "curl/[0-9]+"]]), true);
    check(json!([["arg_weight", "~~", "[1-3]0"]]), true);
    check(json!([["arg_name", "!", "~~", "[a-z]+"]]), false);
    check(json!([["uri", "~~", "\\p{L}"]]), true);
}

#[test]
fn membership_and_networks() {
    check(json!([["arg_name", "in", ["xml", "json"]]]), true);
    check(json!([["arg_name", "IN", ["xml", "json"]]]), true);
    check(json!([["arg_name", "in", ["xml"]]]), false);
    check(json!([["arg_weight", "in", [20]]]), false);
    check(json!([["arg_name", "in", "json"]]), false);
    check(json!([["arg_name", "has", "json"]]), false);
    check(json!([["remote_addr", "ipmatch", ["10.0.0.0/8", "192.0.2.0/24"]]]), true);
    check(json!([["remote_addr", "ipmatch", ["10.0.0.0/8"]]]), false);
    check(json!([["remote_addr", "ipmatch", "192.0.2.7"]]), true);
    check(json!([["remote_addr", "!", "ipmatch", ["::/0"]]]), true);
    check(json!([["arg_name", "ipmatch", ["0.0.0.0/0"]]]), false);
}

#[test]
fn rules_are_joined_by_and_by_default() {
    check(json!([]), true);
    check(json!({}), true);
    check(json!([["arg_name", "==", "json"], ["arg_weight", ">", 30]]), false);
    check(json!(["OR", ["arg_name", "==", "json"], ["arg_weight", ">", 30]]), true);
    check(json!(["!OR", ["arg_name", "==", "json"], ["arg_weight", ">", 30]]), false);
    check(json!(["!AND", ["arg_name", "==", "json"], ["arg_weight", ">", 30]]), true);
    check(json!(["and", ["arg_name", "==", "json"], ["arg_weight", ">", 10]]), true);
    let nested = json!(["OR", ["arg_weight", ">", 30], ["!AND", ["uri", "==", "/"], ["host", "==", "x"]]]);
    check(json!([["http_x_tier", "==", "Gold"], nested]), true);
    check(
        json!([[["arg_name", "==", "json"]], ["AND", ["arg_weight", ">", 1], ["arg_weight", "<", 9]]]),
        false,
    );
}

#[test]
fn two_parts_are_an_equality() {
    // The value is compared as it is written; only operators have no case.
    check(json!([["http_x_tier", "Gold"]]), true);
    check(json!([["http_x_tier", "gold"]]), false);
    check(json!([["arg_name", "json"]]), true);
    check(json!([["arg_name", "xml"]]), false);
    check(json!([["arg_weight", 20]]), true);
}

#[test]
fn refusals_have_the_words_tools_expect() {
    check_refused(json!(null), "missing argument rule");
    check_refused(json!(["arg_name", "==", "json"]), "rule should be wrapped inside brackets");
    check_refused(json!("arg_name"), "rule should be wrapped inside brackets");
    check_refused(json!([["arg_name", "=", "json"]]), "invalid operator '='");
    check_refused(json!([["arg_name", "!", "=="]]), "invalid operator '!'");
    check_refused(json!([["arg_name", "!", "!", "x"]]), "invalid operator '!'");
    check_refused(json!([["arg_name", "not", "==", "x"]]), "bad 'not' expression");
    check_refused(json!([["arg_name"]]), "invalid expression");
    check_refused(json!([[7, "==", "x"]]), "invalid expression");
    check_refused(json!([[]]), "rule too short");
    check_refused(json!(["AND"]), "rule too short");
    check_refused(json!(["OR", ["arg_name", "==", "json"]]), "rule too short");
    check_refused(json!([["arg_a", "==", "b"], "c"]), "rule should be wrapped inside brackets");
    check_refused(json!([["remote_addr", "ipmatch", ["10.0.0.0/33"]]]), "invalid ip address: 10.0.0.0/33");
    check_refused(json!([["remote_addr", "ipmatch", ["10.0.0"]]]), "invalid ip address: 10.0.0");
    check_refused(json!([["remote_addr", "ipmatch", [5]]]), "invalid ip address: 5");
    check_refused(json!([["uri", "~~", {}]]), "a regular expression has to be a string");
}

#[test]
fn look_around_matches_and_slow_patterns_are_reported() {
    let expr = |pattern: &str| ConditionExpr::parse(&json!([["uri", "~~", pattern]])).unwrap();
    let text = format!("GET /{} HTTP/1.1\nHost: a", "a".repeat(64));
    with_exchange(false, &text, |ex| {
        assert!(expr("^/(?!admin)").eval(ex));
        assert!(!expr("^/(?!a)").eval(ex));
        assert!(!ex.is_undecided());
        assert!(!expr(r"(a|a)*\1b").eval(ex));
        assert!(ex.is_undecided());
    });
    let message = ConditionExpr::parse(&json!([["uri", "~~", "^/(?!"]])).unwrap_err();
    assert!(message.starts_with("invalid or unsupported regular expression '^/(?!': "), "{message}");
}

#[test]
fn bodies_are_asked_for_only_where_a_rule_looks_into_them() {
    let needs = |rules: Value| ConditionExpr::parse(&rules).unwrap().needs_body();
    assert!(!needs(json!([["arg_name", "==", "x"]])));
    assert!(needs(json!([
        "OR",
        ["arg_name", "==", "x"],
        ["AND", ["uri", "==", "/"], ["post_arg_x", "==", "1"]]
    ])));
    assert!(needs(json!([["graphql_name", "==", "x"]])));
}

#[test]
fn before_the_body_was_read_only_what_hangs_on_it_is_open() {
    let verdict = |rules: Value, content_type: &str, length: &str| {
        let request = format!("POST /?v=1 HTTP/1.1\nHost: a\nContent-Type: {content_type}{length}");
        with_exchange(false, &request, |ex| ConditionExpr::parse(&rules).unwrap().eval_before_body(ex))
    };
    let check = |rules: Value, expected| {
        assert_eq!(verdict(rules.clone(), "application/json", "\nContent-Length: 2"), expected, "{rules}");
        let known = |content_type, length| verdict(rules.clone(), content_type, length).is_some();
        assert!(known("application/json", ""), "{rules}: there is no body");
        assert!(known("application/grpc", "\nContent-Length: 2"), "{rules}: nothing can be looked at");
    };
    check(json!([["arg_v", "==", "1"]]), Some(true));
    check(json!([["post_arg_x", "==", "1"]]), None);
    check(json!([["post_arg_x", "!", "==", "1"]]), None);
    check(json!([["graphql_name", "==", "q"]]), None);
    check(json!([["arg_v", "==", "1"], ["post_arg_x", "==", "1"]]), None);
    check(json!([["post_arg_x", "==", "1"], ["arg_v", "==", "2"]]), Some(false));
    check(json!(["OR", ["post_arg_x", "==", "1"], ["arg_v", "==", "1"]]), Some(true));
    check(json!(["OR", ["post_arg_x", "==", "1"], ["arg_v", "==", "2"]]), None);
    check(json!(["!AND", ["post_arg_x", "==", "1"], ["arg_v", "==", "2"]]), Some(true));
    check(json!(["!OR", ["post_arg_x", "==", "1"], ["arg_v", "==", "2"]]), None);
    let get = "GET /?query=x HTTP/1.1\nHost: a\nContent-Type: application/json\nContent-Length: 2";
    let name = ConditionExpr::parse(&json!([["graphql_name", "==", "q"]])).unwrap();
    assert_eq!(with_exchange(false, get, |ex| name.eval_before_body(ex)), Some(false));
}

#[test]
fn typed_values_of_bodies_keep_their_type() {
    let request = "POST / HTTP/1.1\nHost: a\nContent-Type: application/json\nContent-Length: 2\n\n\
        {\"n\":5,\"on\":true,\"tags\":[\"a\",\"b\",3]}";
    let holds =
        |rules: Value| with_exchange(false, request, |ex| ConditionExpr::parse(&rules).unwrap().eval(ex));
    assert!(holds(json!([["post_arg.n", "in", [4, 5]]])));
    assert!(holds(json!([["post_arg.n", ">", 4]])));
    assert!(holds(json!([["post_arg.on", "==", true]])));
    assert!(!holds(json!([["post_arg.on", "==", "true"]])));
    assert!(holds(json!([["post_arg.tags", "has", "b"]])));
    assert!(holds(json!([["post_arg.tags", "has", 3]])));
    assert!(!holds(json!([["post_arg.tags", "has", "3"]])));
    assert!(!holds(json!([["post_arg.tags", "~~", "a"]])));
}
