//! Hides secrets in objects: one list of secrets for every listener that returns objects.
//!
//! Secrets are found by the names of their members, their fields and their arguments; see `yumen_config::masking`.

use std::borrow::Cow;
use std::convert::Infallible;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use serde_json::{Map, Value};
use yumen_config::Kind;
use yumen_config::masking::{HIDDEN, compares_secret, hide_in_urls, is_secret_field, is_secret_member};
use yumen_config::node::AdminRole;

use crate::keys::KeyHolder;

/// The part of an object that its reader may see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SecretVisibility {
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

/// Plugins with a setting `key` that names a counted or hashed value and is not a secret.
const PLAIN_KEYS_OF: [&str; 4] = ["limit-count", "limit-conn", "limit-req", "graphql-limit-count"];

/// Suffixes of the names of plugins that send their `headers` with every message.
const LOGGERS: [&str; 2] = ["-logger", "-logging"];

/// Replaces secrets in an object with asterisks, in its plugins and its upstream too.
pub(crate) fn redact(object: &mut Map<String, Value>) {
    let hashes = object.contains_key("nodes") || object.contains_key("hash_on");
    let names_secret = object.get("name").and_then(Value::as_str).is_some_and(is_secret_field);
    for (name, value) in object.iter_mut() {
        match name.as_str() {
            // The `key` of an upstream names the variable to hash.
            "key" if hashes => within(value),
            "value" if names_secret => hide(value),
            "plugins" => plugins(value),
            "auth" => credentials(value),
            name if has_sent_fields(name) => values(value),
            name if has_fields(name) => fields(value),
            _ => named(name, value),
        }
    }
}

/// Whether a member contains header fields, each with its name. Requests or responses of the proxy have them.
fn has_fields(member: &str) -> bool {
    matches!(member, "header" | "headers") || member.ends_with("_headers")
}

/// Whether a member contains header fields that the gateway sends to other servers on its own behalf. Any of them may be
/// the credential for the server.
fn has_sent_fields(member: &str) -> bool {
    member == "extra_headers"
        || ["request_headers", "introspection_headers"].iter().any(|end| member.ends_with(end))
}

fn plugins(value: &mut Value) {
    for (name, settings) in value.as_object_mut().into_iter().flatten() {
        if PLAIN_KEYS_OF.contains(&name.as_str()) {
            without_own_key(settings);
            continue;
        }
        if LOGGERS.iter().any(|end| name.ends_with(end)) {
            // Such fields usually hold a token of the log server.
            settings.get_mut("headers").into_iter().for_each(values);
        }
        within(settings);
    }
}

fn without_own_key(settings: &mut Value) {
    for (name, value) in settings.as_object_mut().into_iter().flatten() {
        match name.as_str() {
            "key" => within(value),
            "rules" => value.as_array_mut().into_iter().flatten().for_each(without_own_key),
            _ => named(name, value),
        }
    }
}

/// Hides credentials for other servers: fields and arguments, which may have any name.
fn credentials(value: &mut Value) {
    match value {
        Value::String(_) => hide(value),
        _ => {
            for section in ["header", "headers", "query"] {
                value.get_mut(section).into_iter().for_each(values);
            }
            within(value);
        }
    }
}

/// Hides all values of a map; a list has names of fields and no values.
fn values(map: &mut Value) {
    match map {
        Value::Object(members) => members.values_mut().for_each(hide),
        other => fields(other),
    }
}

/// Hides the header fields that grant access.
fn fields(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                match name.as_str() {
                    // Edits of fields, as in `proxy-rewrite`.
                    "set" | "add" | "remove" if !value.is_string() => fields(value),
                    name if is_secret_field(name) => hide(value),
                    _ => within(value),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(field),
        _ => within(value),
    }
}

/// Hides the value of a field in a list: a line such as `Authorization: Basic ...`, or an object with `key` and `value`.
fn field(value: &mut Value) {
    let name = value.get("key").or(value.get("name")).and_then(Value::as_str);
    let is_hidden = name.is_some_and(is_secret_field);
    match (value.get_mut("value"), is_hidden) {
        (Some(value), true) => hide(value),
        (Some(value), false) => within(value),
        (None, _) => item(value),
    }
}

fn named(name: &str, value: &mut Value) {
    if is_secret_member(name) { hide(value) } else { within(value) }
}

fn within(value: &mut Value) {
    match value {
        Value::Object(members) => redact(members),
        Value::Array(items) => match compares_secret(items) {
            true => items.iter_mut().skip(2).for_each(hide),
            false => items.iter_mut().for_each(item),
        },
        Value::String(text) => hide_in_urls(text),
        _ => {}
    }
}

/// Hides the value of a field in a list: a line such as `Authorization: Basic ...`, or a pair of name and value.
fn item(value: &mut Value) {
    if let Value::Array(pair) = value
        && let [Value::String(name), text] = &mut pair[..]
        && is_secret_field(name)
    {
        return hide(text);
    }
    let name = value.as_str().and_then(|text| text.split_once(':')).map(|(name, _)| name.trim());
    match name.filter(|name| is_secret_field(name)).map(|name| format!("{name}: {HIDDEN}")) {
        Some(hidden) => *value = Value::String(hidden),
        None => within(value),
    }
}

/// Hides the value of a header field that grants access, and credentials in URLs such as that of `Location`.
pub(crate) fn hide_field(name: &str, value: &mut String) {
    match is_secret_field(name) {
        true => *value = HIDDEN.to_owned(),
        false => hide_in_urls(value),
    }
}

/// Hides the credentials of URLs in all texts of a document.
pub(crate) fn hide_urls_of(document: &mut Value) {
    match document {
        Value::Object(members) => members.values_mut().for_each(hide_urls_of),
        Value::Array(items) => items.iter_mut().for_each(hide_urls_of),
        Value::String(text) => hide_in_urls(text),
        _ => {}
    }
}

fn hide(value: &mut Value) {
    match value {
        // A boolean or a number is no secret, whatever its name is.
        Value::Bool(_) | Value::Number(_) | Value::Null => {}
        // A reference names its secret, and is never used as a text.
        Value::String(text) if is_reference(text) => {}
        other => *other = Value::String(HIDDEN.to_owned()),
    }
}

/// Whether a text is a reference to a secret or a variable of the environment.
fn is_reference(text: &str) -> bool {
    let begins =
        |scheme: &&str| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme));
    ["$secret://", "$env://"].iter().any(begins)
}

#[cfg(test)]
mod tests;
