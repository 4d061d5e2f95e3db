//! What of an object is shown to whom: one list of what is a secret, for every door that shows objects.
//!
//! Goes by names, because settings of plugins nobody has built yet hide secrets too.

use std::borrow::Cow;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use serde_json::{Map, Value};
use yumen_config::Kind;
use yumen_config::node::AdminRole;
use yumen_config::url::{HIDDEN, hide_userinfo};

use crate::keys::KeyHolder;

/// How much of an object its reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SecretVisibility {
    /// All of it, for who may write it back.
    Whole,
    /// Nothing that lets its reader in anywhere, or pass for the gateway.
    NoSecrets,
}

impl SecretVisibility {
    /// That of whoever asks.
    pub(crate) fn of(extensions: &Extensions) -> SecretVisibility {
        match extensions.get::<KeyHolder>().map(|holder| holder.role) {
            None | Some(AdminRole::Admin) => SecretVisibility::Whole,
            Some(AdminRole::Viewer) => SecretVisibility::NoSecrets,
        }
    }
}

impl<S: Sync> FromRequestParts<S> for SecretVisibility {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<SecretVisibility, Infallible> {
        Ok(SecretVisibility::of(&parts.extensions))
    }
}

/// The stored text of an object as the Admin API shows it. Secret members of its kind, such as private keys of `ssls`, never leave, as in APISIX.
pub(crate) fn shown(sight: SecretVisibility, kind: Kind, json: &str) -> Cow<'_, str> {
    if kind.descriptor().admin_api.secret_members.is_empty() && sight == SecretVisibility::Whole {
        return Cow::Borrowed(json);
    }
    // What cannot be read is not shown at all rather than with its secrets.
    let mut object: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
    without_keys(kind, &mut object);
    if sight == SecretVisibility::NoSecrets {
        secrets(&mut object);
    }
    Cow::Owned(Value::Object(object).to_string())
}

/// An object of a whole configuration: for whom sees all of it, one that can be written back.
pub(crate) fn in_document(sight: SecretVisibility, kind: Kind, object: &mut Map<String, Value>) {
    if sight == SecretVisibility::NoSecrets {
        without_keys(kind, object);
        secrets(object);
    }
}

/// An object of the past. That is written back by a rollback and not by who reads it, so nobody is shown a private
/// key.
pub(crate) fn in_history(sight: SecretVisibility, kind: Kind, object: &mut Map<String, Value>) {
    let members = kind.descriptor().admin_api.secret_members;
    members.iter().filter_map(|name| object.get_mut(*name).map(hide)).for_each(drop);
    private_keys(object);
    if sight == SecretVisibility::NoSecrets {
        secrets(object);
    }
}

/// What private keys are called everywhere else: in upstreams, wherever one stands, and in settings of plugins.
const PRIVATE_KEYS: [&str; 3] = ["client_key", "private_key", "sp_private_key"];

fn without_keys(kind: Kind, object: &mut Map<String, Value>) {
    kind.descriptor().admin_api.secret_members.iter().for_each(|name| drop(object.shift_remove(*name)));
}

fn private_keys(object: &mut Map<String, Value>) {
    for (name, value) in object {
        match PRIVATE_KEYS.contains(&name.as_str()) {
            true => hide(value),
            false => private_keys_within(value),
        }
    }
}

fn private_keys_within(value: &mut Value) {
    match value {
        Value::Object(members) => private_keys(members),
        Value::Array(items) => items.iter_mut().for_each(private_keys_within),
        _ => {}
    }
}

/// Names, or their last word, whose values are secrets. Longer rather than sorry.
const SECRET_WORDS: [&str; 22] = [
    "key",
    "keys",
    "password",
    "secret",
    "token",
    "apikey",
    "api_key",
    "access_key",
    "access_key_id",
    "accesskey",
    "secret_key",
    "secret_id",
    "secretkey",
    "private_key",
    "client_key",
    "credential",
    "credentials",
    "authorization",
    "auth_header",
    "passphrase",
    "salt",
    "sasl_config",
];

/// Settings called `key` that say what is counted or hashed, and hold no secret.
const PLAIN_KEYS_OF: [&str; 4] = ["limit-count", "limit-conn", "limit-req", "graphql-limit-count"];

/// Ends of the names of plugins whose `headers` go with everything they send.
const LOGGERS: [&str; 2] = ["-logger", "-logging"];

/// Replaces secrets in an object by stars, in its plugins and its upstream too.
pub(crate) fn secrets(object: &mut Map<String, Value>) {
    let hashes = object.contains_key("nodes") || object.contains_key("hash_on");
    for (name, value) in object.iter_mut() {
        match name.as_str() {
            "key" if hashes => within(value),
            "plugins" => plugins(value),
            "auth" => credentials(value),
            "request_headers" => values(value),
            _ => named(name, value),
        }
    }
}

fn plugins(value: &mut Value) {
    for (name, settings) in value.as_object_mut().into_iter().flatten() {
        if PLAIN_KEYS_OF.contains(&name.as_str()) {
            without_own_key(settings);
            continue;
        }
        within(settings);
        if LOGGERS.iter().any(|end| name.ends_with(end)) {
            settings.get_mut("headers").into_iter().for_each(values);
        }
    }
}

fn without_own_key(settings: &mut Value) {
    for (name, value) in settings.as_object_mut().into_iter().flatten() {
        if name != "key" && name != "rules" {
            named(name, value);
        }
    }
}

/// What is sent to be let in somewhere: fields and arguments of names nobody can list.
fn credentials(value: &mut Value) {
    for place in ["header", "headers", "query"] {
        value.get_mut(place).into_iter().for_each(values);
    }
    within(value);
}

/// Hides all values of a map; a list names fields and holds no values.
fn values(map: &mut Value) {
    match map {
        Value::Object(members) => members.values_mut().for_each(hide),
        other => within(other),
    }
}

fn named(name: &str, value: &mut Value) {
    if is_secret(name) { hide(value) } else { within(value) }
}

fn within(value: &mut Value) {
    match value {
        Value::Object(members) => secrets(members),
        Value::Array(items) => items.iter_mut().for_each(item),
        Value::String(text) => hide_userinfo(text),
        _ => {}
    }
}

/// A list may hold fields as they are sent: `Authorization: Basic ...`.
fn item(value: &mut Value) {
    let name = value.as_str().and_then(|text| text.split_once(':')).map(|(name, _)| name.trim());
    match name.filter(|name| is_secret(name)).map(|name| format!("{name}: {HIDDEN}")) {
        Some(hidden) => *value = Value::String(hidden),
        None => within(value),
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
