//! Warnings of members that APISIX refuses.

use serde_json::{Value, json};
use yumen_base::Problem;
use yumen_config::Kind;

use crate::compile::tests::{compiler, put};

fn check(kind: Kind, value: Value, expected: &[&str]) {
    let compiled = compiler().apply(vec![put(kind, "x", value.clone())], 1);
    let path = |one: &Problem| one.message.contains("APISIX").then(|| one.path.clone());
    let warned: Vec<String> = compiled.problems.iter().filter_map(path).collect();
    assert_eq!(warned, expected, "{value}");
}

#[test]
fn each_member_that_apisix_refuses_is_a_warning() {
    let pem = "x".repeat(128);
    let ssl = |more: Value| {
        let mut ssl = json!({ "sni": "a.test", "cert": pem, "key": pem });
        ssl.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        ssl
    };
    check(Kind::GlobalRules, json!({ "plugins": {} }), &[]);
    let named = json!({ "name": "n", "desc": "d", "labels": { "a": "b" }, "plugins": {} });
    check(Kind::GlobalRules, named, &["name", "desc", "labels"]);
    check(Kind::Ssls, ssl(json!({ "desc": "d", "labels": { "a": "b" }, "ssl_ciphers": ["AES128"] })), &[]);
    let times = json!({ "name": "n", "validity_start": 1, "validity_end": 2 });
    check(Kind::Ssls, ssl(times.clone()), &["name", "validity_start", "validity_end"]);
    let mut disabled = times;
    disabled["status"] = json!(0);
    check(Kind::Ssls, ssl(disabled), &["name", "validity_start", "validity_end"]);
}
