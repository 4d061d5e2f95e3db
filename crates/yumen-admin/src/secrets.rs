//! Hides secrets in objects: one list of secrets for every listener that returns objects.
//!
//! Secrets are found by name, because settings of plugins that are not built yet have secrets too.

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

/// The part of an object that its reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SecretVisibility {
    /// Everything, for clients that may write the object back.
    Whole,
    /// Nothing that grants access to anything or impersonates the gateway.
    NoSecrets,
}

impl SecretVisibility {
    /// The visibility for the holder of the request's key.
    pub(crate) fn of(extensions: &Extensions) -> SecretVisibility {
        match extensions.get::<KeyHolder>().map(|holder| holder.role) {
            // Without authentication every client may read all.
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

/// The stored text of an object as the Admin API returns it. Secret members of its kind, such as private keys
/// of `ssls`, are never returned, as in APISIX.
pub(crate) fn shown(visibility: SecretVisibility, kind: Kind, json: &str) -> Cow<'_, str> {
    // The common case returns the stored text without parsing it.
    if kind.descriptor().admin_api.secret_members.is_empty() && visibility == SecretVisibility::Whole {
        return Cow::Borrowed(json);
    }
    // An unreadable text is left out as a whole, since its secrets cannot be found.
    let mut object: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
    without_keys(kind, &mut object);
    if visibility == SecretVisibility::NoSecrets {
        redact(&mut object);
    }
    Cow::Owned(Value::Object(object).to_string())
}

/// Prepares an object of a whole configuration. With full visibility it stays complete, so that it can be
/// written back.
pub(crate) fn in_document(visibility: SecretVisibility, kind: Kind, object: &mut Map<String, Value>) {
    if visibility == SecretVisibility::NoSecrets {
        without_keys(kind, object);
        redact(object);
    }
}

/// Prepares an object of a past revision. A rollback restores it without the reader's copy, so private keys
/// are always hidden.
pub(crate) fn in_history(visibility: SecretVisibility, kind: Kind, object: &mut Map<String, Value>) {
    let members = kind.descriptor().admin_api.secret_members;
    members.iter().filter_map(|name| object.get_mut(*name).map(hide)).for_each(drop);
    private_keys(object);
    if visibility == SecretVisibility::NoSecrets {
        redact(object);
    }
}

/// Names of private keys elsewhere: in upstreams, inline ones included, and in settings of plugins.
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

/// Names, or last words of names, of secrets. A name too many is better than one too few.
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

/// Plugins with a setting `key` that names a counted or hashed value and is not a secret.
const PLAIN_KEYS_OF: [&str; 4] = ["limit-count", "limit-conn", "limit-req", "graphql-limit-count"];

/// Suffixes of the names of plugins that send their `headers` with every message.
const LOGGERS: [&str; 2] = ["-logger", "-logging"];

/// Replaces secrets in an object with asterisks, in its plugins and its upstream too.
pub(crate) fn redact(object: &mut Map<String, Value>) {
    let hashes = object.contains_key("nodes") || object.contains_key("hash_on");
    for (name, value) in object.iter_mut() {
        match name.as_str() {
            // The `key` of an upstream names the variable to hash.
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
            // Such fields usually hold a token of the log server.
            settings.get_mut("headers").into_iter().for_each(values);
        }
    }
}

fn without_own_key(settings: &mut Value) {
    for (name, value) in settings.as_object_mut().into_iter().flatten() {
        // Each of the `rules` has such a `key` too.
        if name != "key" && name != "rules" {
            named(name, value);
        }
    }
}

/// Hides credentials for other servers: fields and arguments, which may have any name.
fn credentials(value: &mut Value) {
    for section in ["header", "headers", "query"] {
        value.get_mut(section).into_iter().for_each(values);
    }
    within(value);
}

/// Hides all values of a map; a list has names of fields and no values.
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
        Value::Object(members) => redact(members),
        Value::Array(items) => items.iter_mut().for_each(item),
        // URLs may contain a password (RFC 3986 §3.2.1).
        Value::String(text) => hide_userinfo(text),
        _ => {}
    }
}

/// Hides the value of a field in a list of fields, such as `Authorization: Basic ...`.
fn item(value: &mut Value) {
    let name = value.as_str().and_then(|text| text.split_once(':')).map(|(name, _)| name.trim());
    match name.filter(|name| is_secret(name)).map(|name| format!("{name}: {HIDDEN}")) {
        Some(hidden) => *value = Value::String(hidden),
        None => within(value),
    }
}

/// Hides the value of a header field that grants access.
pub(crate) fn hide_field(name: &str, value: &mut String) {
    if is_secret(name) || SECRET_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field)) {
        *value = HIDDEN.to_owned();
    }
}

/// Header fields with credentials.
const SECRET_FIELDS: [&str; 4] = ["Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"];

fn is_secret(name: &str) -> bool {
    // Fields have hyphens where settings have underscores.
    let name = name.to_ascii_lowercase().replace('-', "_");
    let ends =
        |word: &&str| name == **word || name.strip_suffix(*word).is_some_and(|start| start.ends_with('_'));
    SECRET_WORDS.iter().any(ends)
}

fn hide(value: &mut Value) {
    // A boolean or a number is no secret, whatever its name is.
    if !matches!(value, Value::Bool(_) | Value::Number(_) | Value::Null) {
        *value = Value::String(HIDDEN.to_owned());
    }
}
