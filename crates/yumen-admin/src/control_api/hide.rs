//! What must not be shown where no key is asked for: secrets inside settings.
//!
//! Goes by names, because settings of plugins nobody has built yet hide secrets too.

use serde_json::{Map, Value};

/// Names, or their last word, whose values are secrets. Longer rather than sorry.
const SECRET_WORDS: [&str; 17] = [
    "key",
    "keys",
    "password",
    "secret",
    "token",
    "apikey",
    "api_key",
    "access_key",
    "secret_key",
    "private_key",
    "client_key",
    "credential",
    "credentials",
    "authorization",
    "passphrase",
    "salt",
    "sasl_config",
];

/// Settings called `key` that say what is counted or hashed, and hold no secret.
const PLAIN_KEYS_OF: [&str; 4] = ["limit-count", "limit-conn", "limit-req", "graphql-limit-count"];

const HIDDEN: &str = "******";

/// Replaces secrets in an object by stars, in its plugins and its upstream too.
pub(super) fn secrets(object: &mut Map<String, Value>) {
    let hashes = object.contains_key("nodes") || object.contains_key("hash_on");
    for (name, value) in object.iter_mut() {
        if is_secret(name) && !(hashes && name == "key") {
            hide(value);
        } else if name == "plugins" {
            plugins(value);
        } else {
            within(value);
        }
    }
}

fn plugins(value: &mut Value) {
    for (name, settings) in value.as_object_mut().into_iter().flatten() {
        match PLAIN_KEYS_OF.contains(&name.as_str()) {
            true => without_own_key(settings),
            false => within(settings),
        }
    }
}

fn without_own_key(settings: &mut Value) {
    for (name, value) in settings.as_object_mut().into_iter().flatten() {
        if name == "key" || name == "rules" {
            continue;
        }
        if is_secret(name) { hide(value) } else { within(value) }
    }
}

fn within(value: &mut Value) {
    match value {
        Value::Object(members) => secrets(members),
        Value::Array(items) => items.iter_mut().for_each(within),
        _ => {}
    }
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    let ends =
        |word: &&str| name == **word || name.strip_suffix(*word).is_some_and(|start| start.ends_with('_'));
    SECRET_WORDS.iter().any(ends)
}

fn hide(value: &mut Value) {
    // A switch or a number is no secret, whatever it is called.
    if !matches!(value, Value::Bool(_) | Value::Number(_) | Value::Null) {
        *value = Value::String(HIDDEN.to_owned());
    }
}
