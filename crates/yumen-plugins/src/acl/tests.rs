use std::sync::Arc;

use serde_json::{Value, json};
use yumen_plugin::ExternalUser;

use crate::testing::PluginBench;

/// The client of a request.
enum TestClient {
    Nobody,
    /// A consumer with this label `team`.
    Consumer(&'static str),
    /// A user with these claims.
    User(Value),
}

#[track_caller]
fn check(settings: Value, client: TestClient, expected: (u16, &str)) {
    let mut bench = PluginBench::new();
    if let TestClient::Consumer(team) = client {
        bench.add_labelled_consumer("jack", &[("team", team)]);
    }
    let plugins = [bench.plugin("acl", settings.clone())];
    let request = "GET / HTTP/1.1";
    let mut ex = bench.exchange(request);
    if let Some(consumer) = bench.consumers.named("jack") {
        ex.identify(consumer, None);
    }
    if let TestClient::User(claims) = client {
        ex.external_user = Some(Box::new(ExternalUser { id: "u".into(), claims: Arc::new(claims) }));
    }
    let answer = bench.admit(&plugins, &mut ex, request);
    let reply = bench.finish(&plugins, ex, answer);
    assert_eq!((reply.status, reply.body.as_str()), expected, "{settings}");
}

const OK: (u16, &str) = (200, "ok\n");
const FORBIDDEN: (u16, &str) = (403, "{\"message\":\"The consumer is forbidden.\"}\n");

#[test]
fn labels_of_a_consumer_admit_and_refuse() {
    let allow = || json!({"allow_labels": {"team": ["web", "ops"]}});
    let deny = || json!({"deny_labels": {"team": ["web"]}});
    for (label, allowed, denied) in [
        ("web", OK, FORBIDDEN),
        ("ops", OK, OK),
        ("data", FORBIDDEN, OK),
        ("data, web", OK, FORBIDDEN),
        (r#"["data","web"]"#, OK, FORBIDDEN),
        // A list that cannot be read.
        (r#"["web""#, FORBIDDEN, FORBIDDEN),
        ("", FORBIDDEN, OK),
    ] {
        check(allow(), TestClient::Consumer(label), allowed);
        check(deny(), TestClient::Consumer(label), denied);
    }
    let both = json!({"allow_labels": {"team": ["web"]}, "deny_labels": {"team": ["ops"]}});
    check(both.clone(), TestClient::Consumer("web"), OK);
    check(both, TestClient::Consumer("web,ops"), FORBIDDEN);
    check(json!({"allow_labels": {"other": ["web"]}}), TestClient::Consumer("web"), FORBIDDEN);
}

#[test]
fn a_client_without_identity_is_refused() {
    let expected = (401, "{\"message\":\"Missing authentication.\"}\n");
    check(json!({"deny_labels": {"team": ["web"]}}), TestClient::Nobody, expected);
}

#[test]
fn status_and_message_are_settings() {
    let settings = json!({"deny_labels": {"team": ["a"]}, "rejected_code": 404, "rejected_msg": "no"});
    check(settings, TestClient::Consumer("a"), (404, "{\"message\":\"no\"}\n"));
}

#[test]
fn claims_of_an_external_user_are_labels() {
    let with = |more: Value| {
        let mut settings = json!({"allow_labels": {"groups": ["web"]}});
        settings.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        settings
    };
    let plain = || with(json!({}));
    check(plain(), TestClient::User(json!({"groups": ["web"]})), OK);
    check(plain(), TestClient::User(json!({"groups": "ops,web"})), OK);
    check(plain(), TestClient::User(json!({"groups": ["ops"]})), FORBIDDEN);
    check(plain(), TestClient::User(json!({"groups": [1]})), FORBIDDEN);
    check(plain(), TestClient::User(json!({})), FORBIDDEN);
    let path =
        json!({"external_user_label_field": "$.realm.roles", "external_user_label_field_key": "groups"});
    check(with(path), TestClient::User(json!({"realm": {"roles": ["web"]}})), OK);
    let parser = |name: &str| json!({"external_user_label_field_parser": name, "external_user_label_field_separator": "[;|]"});
    check(with(parser("segmented_text")), TestClient::User(json!({"groups": "ops;web|x"})), OK);
    check(with(parser("segmented_text")), TestClient::User(json!({"groups": "ops,web"})), FORBIDDEN);
    check(with(parser("json")), TestClient::User(json!({"groups": "[\"web\"]"})), OK);
    check(with(parser("table")), TestClient::User(json!({"groups": "web"})), FORBIDDEN);
}

#[test]
fn settings_that_cannot_be_followed_are_refused() {
    let bench = PluginBench::new();
    for (settings, message) in [
        (json!({}), "acl"),
        (json!({"allow_labels": {"a": ["b"]}, "external_user_label_field": "$..a"}), "no path of members"),
        (
            json!({"allow_labels": {"a": ["b"]}, "external_user_label_field_parser": "segmented_text"}),
            "external_user_label_field_separator",
        ),
        (
            json!({"allow_labels": {"a": ["b"]}, "external_user_label_field_parser": "segmented_text", "external_user_label_field_separator": "("}),
            "no pattern",
        ),
    ] {
        let refusal =
            bench.build("acl", settings.clone()).err().map(|error| format!("{error:?}")).unwrap_or_default();
        assert!(refusal.contains(message) || message == "acl", "{settings}: {refusal}");
    }
}
