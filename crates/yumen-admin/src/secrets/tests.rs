//! Every member of every schema, with a secret in it, as a viewer sees it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use yumen_config::Kind;
use yumen_config::resource;
use yumen_plugin::PluginRegistry;

use super::{hide_field, hide_urls_of, redact};

/// A value that no viewer may see.
const CANARY: &str = "c4n4ry";

/// Parts of names that are typical of secrets. Members with such names are hidden, or listed in `SHOWN`.
const SUSPICIOUS: [&str; 14] = [
    "pass",
    "pwd",
    "secret",
    "token",
    "key",
    "sasl",
    "auth",
    "cred",
    "cookie",
    "priv",
    "salt",
    "signature",
    "session",
    "jwt",
];

/// Members that are shown in spite of their names, of all schemas or of one.
const SHOWN: [&str; 24] = [
    // Addresses, whose credentials are hidden.
    "password_grant_token_generation_incoming_uri",
    "token_endpoint",
    "access_token_url",
    "auth_redirect_uri",
    "token_uri",
    // The path of a file.
    "auth_file",
    // Names of keys, claims, cookies and methods.
    "key_id",
    "key_claim_name",
    "client_rsa_private_key_id",
    "cookie_domain",
    "cookie_name",
    "cookie_path",
    "client_jwt_assertion_audience",
    "introspection_endpoint_auth_method",
    "token_endpoint_auth_method",
    "token_signing_alg_values_expected",
    "jwt-auth: cookie",
    "routes: backends.[].canary.cookie",
    "stream_routes: backends.[].canary.cookie",
    // Variables by whose values requests are counted.
    "limit-conn: key",
    "limit-conn: rules.[].key",
    "limit-count: key",
    "limit-count: rules.[].key",
    "limit-req: key",
];

/// The settings that a schema describes.
struct SchemaSample {
    name: String,
    schema: Value,
    /// The plugin, if these are settings of one.
    plugin: Option<&'static str>,
}

impl SchemaSample {
    /// Whether a viewer sees the canary in `value` at `path`.
    fn shows(&self, path: &[String], value: Value) -> bool {
        let settings = placed(path, value);
        let mut object = match (self.plugin, settings) {
            (Some(plugin), settings) => Map::from_iter([("plugins".to_owned(), json!({ plugin: settings }))]),
            (None, Value::Object(object)) => object,
            (None, other) => panic!("{}: {other}", self.name),
        };
        redact(&mut object);
        Value::Object(object).to_string().contains(CANARY)
    }
}

/// An object with `value` at `path`.
fn placed(path: &[String], value: Value) -> Value {
    path.iter().rev().fold(value, |inner, name| match name.as_str() {
        "[]" => json!([inner]),
        name => json!({ name: inner }),
    })
}

/// Schemas of all plugins, kinds and secret managers.
fn samples() -> Vec<SchemaSample> {
    let registry = PluginRegistry::new(yumen_plugins::BUILTIN);
    let mut samples = Vec::new();
    for plugin in registry.iter() {
        let name = plugin.kind.name;
        let mut add = |of: &str, schema: Option<Value>, plugin| {
            samples.extend(schema.map(|schema| SchemaSample { name: format!("{name}{of}"), schema, plugin }));
        };
        add("", Some(plugin.schema().clone()), Some(name));
        add(" of a consumer", plugin.consumer_schema().cloned(), Some(name));
        add(" metadata", plugin.metadata_schema(), None);
    }
    let kinds = Kind::ALL.into_iter().map(|kind| (kind.name(), resource::schema_of(kind).clone()));
    let managers = ["vault", "aws", "gcp"].map(|one| (one, resource::secret_schema(one).unwrap().clone()));
    samples.extend(kinds.chain(managers).map(|(name, schema)| SchemaSample {
        name: name.to_owned(),
        schema,
        plugin: None,
    }));
    samples
}

/// Calls `each` with path and schema of all members. `[]` stands for an item, `any` for a member of a map.
fn visit(schema: &Value, path: &mut Vec<String>, each: &mut impl FnMut(&[String], &Value)) {
    for choice in ["allOf", "anyOf", "oneOf", "if", "then", "else"] {
        match &schema[choice] {
            Value::Array(choices) => choices.iter().for_each(|one| visit(one, path, each)),
            one => visit_object(one, |one| visit(one, path, each)),
        }
    }
    let mut below = |name: &str, schema: &Value| {
        path.push(name.to_owned());
        each(path, schema);
        visit(schema, path, each);
        path.pop();
    };
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        below(name, schema);
    }
    for schema in schema["patternProperties"].as_object().into_iter().flat_map(Map::values) {
        below("any", schema);
    }
    visit_object(&schema["additionalProperties"], |schema| below("any", schema));
    match &schema["items"] {
        Value::Array(items) => items.iter().for_each(|item| below("[]", item)),
        item => visit_object(item, |item| below("[]", item)),
    }
}

fn visit_object(value: &Value, mut each: impl FnMut(&Value)) {
    if value.is_object() {
        each(value);
    }
}

/// Calls `each` with every member of every schema.
fn for_each_member(mut each: impl FnMut(&SchemaSample, &[String], &Value)) {
    for sample in samples() {
        visit(&sample.schema, &mut Vec::new(), &mut |path, schema| each(&sample, path, schema));
    }
}

/// Whether a schema admits this JSON type.
fn admits(schema: &Value, wanted: &str) -> bool {
    let is_open = schema["properties"].is_null() && schema["enum"].is_null() && schema["const"].is_null();
    match &schema["type"] {
        Value::String(name) => name == wanted && is_open,
        Value::Array(names) => names.iter().any(|name| name == wanted) && is_open,
        _ => is_open && schema["items"].is_null(),
    }
}

/// The name of the innermost member of a path.
fn last_name(path: &[String]) -> &str {
    path.iter().rev().find(|name| *name != "[]" && *name != "any").map_or("", String::as_str)
}

#[test]
fn no_member_named_like_a_secret_is_shown() {
    let (mut leaks, mut shown) = (BTreeSet::new(), BTreeSet::new());
    for_each_member(|sample, path, schema| {
        let name = last_name(path);
        let is_suspicious = SUSPICIOUS.iter().any(|part| name.contains(part));
        if !is_suspicious || !admits(schema, "string") || !sample.shows(path, json!(CANARY)) {
            return;
        }
        let place = format!("{}: {}", sample.name, path.join("."));
        match SHOWN.iter().find(|one| **one == name || **one == place) {
            Some(one) => drop(shown.insert(*one)),
            None => drop(leaks.insert(place)),
        }
    });
    assert!(
        leaks.is_empty(),
        "hide these members in yumen_config::masking, or list them in SHOWN: {leaks:#?}"
    );
    let unused: Vec<&&str> = SHOWN.iter().filter(|name| !shown.contains(**name)).collect();
    assert!(unused.is_empty(), "no schema has these members, or they are hidden: {unused:?}");
}

#[test]
fn members_that_schemas_mark_as_encrypted_are_hidden() {
    let mut checked = 0;
    for sample in samples() {
        for field in sample.schema["encrypt_fields"].as_array().into_iter().flatten() {
            let mut is_found = false;
            visit(&sample.schema, &mut Vec::new(), &mut |path, schema| {
                let plain: Vec<&str> =
                    path.iter().map(String::as_str).filter(|name| *name != "[]" && *name != "any").collect();
                if Some(&*plain.join(".")) != field.as_str() || path.last().is_some_and(|name| name == "[]") {
                    return;
                }
                is_found = true;
                checked += 1;
                let values = [json!(CANARY), json!([CANARY]), json!({ "X-Any": CANARY })];
                let admitted = values.into_iter().zip(["string", "array", "object"]);
                for (value, _) in admitted.filter(|(_, name)| schema["type"] == *name) {
                    assert!(!sample.shows(path, value), "{}: {}", sample.name, path.join("."));
                }
            });
            assert!(is_found, "{}: no member {field}", sample.name);
        }
    }
    assert!(checked > 15, "{checked}");
}

#[test]
fn header_fields_that_grant_access_are_hidden_in_every_map_of_fields() {
    let names = ["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie", "X-Api-Key", "X-AuthToken"];
    let map: Value =
        names.iter().map(|name| ((*name).to_owned(), json!(CANARY))).collect::<Map<_, _>>().into();
    let lines: Value = names.iter().map(|name| json!(format!("{name}: {CANARY}"))).collect();
    let pairs: Value = names.iter().map(|name| json!({ "key": name, "value": CANARY })).collect();
    let mut checked = 0;
    for_each_member(|sample, path, schema| {
        let name = last_name(path);
        // `upstream_header` of `deadline` names one field and its format.
        if schema["properties"]["name"].is_object() {
            return;
        }
        // A schema of fields has no values of fields.
        // Others list names, such as `send_headers_upstream` of `opa`.
        let has_fields = name.ends_with("header") || name.ends_with("headers");
        if !has_fields || name == "header_schema" || path.last().is_some_and(|last| last != name) {
            return;
        }
        for (kind, value) in [
            ("object", map.clone()),
            ("object", json!({ "set": map, "add": lines })),
            ("array", lines.clone()),
            ("array", pairs.clone()),
        ] {
            if schema["type"] == kind || schema["type"].is_null() && name.ends_with("headers") {
                checked += 1;
                assert!(!sample.shows(path, value), "{}: {}", sample.name, path.join("."));
            }
        }
    });
    assert!(checked > 20, "{checked}");
}

#[test]
fn credentials_in_urls_are_hidden_in_every_text() {
    let url = format!("https://user:{CANARY}@a.test/path?api_key={CANARY}&x=1#access_token={CANARY}");
    let mut checked = 0;
    for_each_member(|sample, path, schema| {
        if admits(schema, "string") {
            checked += 1;
            assert!(!sample.shows(path, json!(url)), "{}: {}", sample.name, path.join("."));
        }
    });
    assert!(checked > 500, "{checked}");
}

/// Checks the form of an object for viewers.
fn check(written: Value, shown: Value) {
    let mut object = written.as_object().unwrap().clone();
    redact(&mut object);
    assert_eq!(Value::Object(object), shown, "{written}");
}

#[test]
fn references_conditions_and_pairs_are_shown_without_their_secrets() {
    // A reference names a secret and is none.
    check(
        json!({ "plugins": { "key-auth": { "key": "$secret://vault/1/jack/key" }, "csrf": { "key": "$ENV://K" } } }),
        json!({ "plugins": { "key-auth": { "key": "$secret://vault/1/jack/key" }, "csrf": { "key": "$ENV://K" } } }),
    );
    check(
        json!({ "vars": [["http_x_api_key", "!", "==", "k"], ["arg_page", "==", "2"], ["arg_token", "in", ["a"]]] }),
        json!({ "vars": [["http_x_api_key", "!", "******", "******"], ["arg_page", "==", "2"],
            ["arg_token", "in", "******"]] }),
    );
    check(
        json!({ "plugins": { "api-breaker": { "break_response_headers": [
            { "key": "Set-Cookie", "value": "a=b" }, { "key": "Retry-After", "value": "5" }] } } }),
        json!({ "plugins": { "api-breaker": { "break_response_headers": [
            { "key": "Set-Cookie", "value": "******" }, { "key": "Retry-After", "value": "5" }] } } }),
    );
    check(
        json!({ "actions": { "request_fields": { "set": [["Cookie", "a=b"], ["X-Env", "test"]] } } }),
        json!({ "actions": { "request_fields": { "set": [["Cookie", "******"], ["X-Env", "test"]] } } }),
    );
    check(
        json!({ "plugins": { "ext-plugin-pre-req": { "conf": [{ "name": "api_token", "value": "t" }] } } }),
        json!({ "plugins": { "ext-plugin-pre-req": { "conf": [{ "name": "api_token", "value": "******" }] } } }),
    );
    check(
        json!({ "plugins": { "ai-proxy": { "auth": { "gcp": { "service_account_json": "{}" } } } } }),
        json!({ "plugins": { "ai-proxy": { "auth": { "gcp": { "service_account_json": "******" } } } } }),
    );
}

#[test]
fn explained_fields_and_urls_are_shown_without_their_secrets() {
    for (name, value, expected) in [
        ("Cookie", "a=b", "******"),
        ("X-Env", "test", "test"),
        ("Location", "/a?code=c&x=1", "/a?code=******&x=1"),
    ] {
        let mut shown = value.to_owned();
        hide_field(name, &mut shown);
        assert_eq!(shown, expected, "{name}");
    }
    let mut document = json!({ "uri": "/a?token=t", "steps": [{ "text": "to http://u:p@b.test" }] });
    hide_urls_of(&mut document);
    let shown = json!({ "uri": "/a?token=******", "steps": [{ "text": "to http://u:******@b.test" }] });
    assert_eq!(document, shown);
}
