//! Warnings about settings that accept more than users may expect.

use serde_json::{Value, json};

use super::{MemoryProvider, settings};
use crate::testing::PluginBench;

fn check(more: Value, warned: &[&str]) {
    let provider = MemoryProvider::new(&json!({}));
    let mut bench = PluginBench::new();
    bench.objects = Some(provider.objects());
    let built = bench.build("openid-connect", settings(more.clone()));
    assert!(built.is_ok(), "{more}: {:?}", built.err());
    assert_eq!(provider.warned.take(), warned, "{more}");
}

#[test]
fn bearer_tokens_for_other_applications_are_warned_of() {
    const PATH: &str = "claim_validator.audience.match_with_client_id";
    check(json!({"bearer_only": true, "use_jwks": true}), &[PATH]);
    check(json!({"use_jwks": true}), &[PATH]);
    check(json!({"bearer_only": true, "use_jwks": true, "required_scopes": []}), &[PATH]);
    let audience = |more: Value| json!({"use_jwks": true, "claim_validator": {"audience": more}});
    check(audience(json!({"required": true})), &[PATH]);
    check(audience(json!({"match_with_client_id": true})), &[]);
    check(json!({"use_jwks": true, "required_scopes": ["read"]}), &[]);
    check(json!({"use_jwks": true, "claim_schema": {"required": ["tenant"]}}), &[]);
    // Logins have tokens for this client alone, and the introspection endpoint decides about others.
    check(json!({}), &[]);
    check(json!({"bearer_only": true, "introspection_endpoint": "https://idp.test/introspect"}), &[]);
}
