//! Decides whether an object may be written: schema, plugins and conditions, with the messages that tools
//! expect.
//!
//! Validates one object alone; references are checked where a state is at hand. The compiler's validator
//! decides; this module words its errors.

use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use yumen_config::resource::{ActiveCheck, TrafficClass};
use yumen_config::{InvalidSettings, Kind, resource, schema};
use yumen_snapshot::compile::{KeyPairError, meta_schema};
use yumen_snapshot::{ObjectError, ObjectValidator, PluginSettingsError};

use crate::api::AdminState;
use crate::refusal::ApiRefusal;

/// The prefix of errors of a schema.
pub(crate) const INVALID: &str = "invalid configuration: ";

/// The words for a text that is neither an address nor a network: APISIX's schema has one branch per form.
const NO_ADDRESS: &str = "object matches none of the required";

/// The deepest nesting of an object: less than JSON readers allow (128), so that a document can contain it.
const LEVELS_MAX: usize = 100;

/// Why an object is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ObjectRefusal {
    /// The message of the contract.
    pub(crate) message: String,
    /// Path within the object; empty for the whole object.
    pub(crate) path: String,
    /// Remedy, if one is known.
    pub(crate) hint: Option<String>,
}

impl From<String> for ObjectRefusal {
    fn from(message: String) -> ObjectRefusal {
        ObjectRefusal { message, path: String::new(), hint: None }
    }
}

impl From<ObjectRefusal> for String {
    fn from(refusal: ObjectRefusal) -> String {
        refusal.message
    }
}

/// The remedy is a member of its own, since tools compare `error_msg`.
impl From<ObjectRefusal> for ApiRefusal {
    fn from(refusal: ObjectRefusal) -> ApiRefusal {
        let mut body = json!({ "error_msg": refusal.message });
        if let Some(hint) = refusal.hint {
            body["hint"] = hint.into();
        }
        ApiRefusal::of(StatusCode::BAD_REQUEST, body)
    }
}

/// Validates `value` as an object of `kind`; the message is the `error_msg` of the refusal.
///
/// The id inside `value` selects the plugin of metadata, and the secret manager.
pub(crate) fn object(state: &AdminState, kind: Kind, value: &Value) -> Result<(), ObjectRefusal> {
    restorable_object(state, kind, value)?;
    let flaw = unknown_meta_member(value).or_else(|| flawed_probe_field(kind, value));
    flaw.map_or(Ok(()), |flaw| Err(refusal(kind, value, flaw)))
}

/// As [`object`], for documents that may be exports: it accepts every object that the compiler accepts from another
/// source.
pub(crate) fn restorable_object(state: &AdminState, kind: Kind, value: &Value) -> Result<(), ObjectRefusal> {
    // Checked before any recursive validation.
    if is_deeper(value, LEVELS_MAX) {
        let message = format!("{INVALID}it is nested deeper than {LEVELS_MAX} levels");
        return Err(ObjectRefusal { message, path: String::new(), hint: None });
    }
    let validator = ObjectValidator {
        registry: &state.registry,
        missing: &state.missing,
        load_certificate: &state.load_certificate,
        variables: &state.variables,
    };
    validator.validate(kind, value).map_err(|flaw| refusal(kind, value, flaw))
}

fn refusal(kind: Kind, value: &Value, flaw: ObjectError) -> ObjectRefusal {
    let (path, hint) = place_and_hint(&flaw);
    let hint = hint.or_else(|| details(kind, value, &path));
    ObjectRefusal { path, hint, message: message(kind, value, flaw) }
}

/// Faults in the settings beside the one at `path`, which may be vague: "object matches none of the required".
fn details(kind: Kind, value: &Value, path: &str) -> Option<String> {
    const LISTED_MAX: usize = 5;
    let faults = schema::faults(resource::schema_of(kind), value);
    let others = faults.iter().filter(|fault| fault.path != path);
    let listed: Vec<String> = others
        .take(LISTED_MAX)
        .map(|fault| {
            let cause = fault.message.rsplit("validation failed: ").next().unwrap_or_default();
            let remedy = fault.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
            format!("{}: {cause}{remedy}", fault.path)
        })
        .collect();
    (!listed.is_empty()).then(|| listed.join("; "))
}

/// Path within the object, and remedy. Tools compare the message alone.
fn place_and_hint(flaw: &ObjectError) -> (String, Option<String>) {
    let of = |prefix: &str, invalid: &InvalidSettings| {
        let path = invalid.clone().under(prefix).path;
        (path.trim_end_matches('.').to_owned(), invalid.hint.clone())
    };
    match flaw {
        ObjectError::Object(invalid) => (invalid.path.clone(), invalid.hint.clone()),
        ObjectError::Plugin { name, flaw: PluginSettingsError::Settings(invalid) } => {
            of(&format!("plugins.{name}"), invalid)
        }
        ObjectError::Plugin { name, .. } => (format!("plugins.{name}"), None),
        ObjectError::Vars(_) => ("vars".to_owned(), None),
        ObjectError::Upstream { path, .. } => (path.to_string(), None),
        ObjectError::Handshake { path, .. } => (path.to_string(), None),
        ObjectError::Address(_) | ObjectError::Certificate { .. } => (String::new(), None),
    }
}

/// Refuses an unknown member of `_meta`, as APISIX does. The compiler accepts it, since the rest of the object is
/// valid.
fn unknown_meta_member(value: &Value) -> Option<ObjectError> {
    let known = &meta_schema()["properties"];
    for (name, settings) in value.get("plugins")?.as_object()? {
        let Some(meta) = settings.get("_meta").and_then(Value::as_object) else { continue };
        // Settings of a disabled plugin may be invalid.
        let is_disabled = meta.get("disable") == Some(&Value::Bool(true));
        let unknown = meta.keys().find(|member| known.get(member.as_str()).is_none());
        if let Some(member) = unknown.filter(|_| !is_disabled) {
            let message = format!(
                "property \"_meta\" validation failed: additional properties forbidden, found {member}"
            );
            let flaw = PluginSettingsError::Settings(InvalidSettings::at("_meta", message));
            return Some(ObjectError::Plugin { name: name.clone(), flaw });
        }
    }
    None
}

/// Refuses a field that a probe cannot send. The compiler accepts the object without the field.
fn flawed_probe_field(kind: Kind, value: &Value) -> Option<ObjectError> {
    let upstreams = resource::upstreams_in(kind, value.as_object()?);
    let flaw_at = |(path, upstream): (String, &Map<String, Value>)| {
        let active = ActiveCheck::deserialize(upstream.get("checks")?.get("active")?).ok()?;
        let flaw = active.probe_field_flaws().next()?;
        let at = format!("checks.active.req_headers[{}]", flaw.at);
        let invalid = InvalidSettings::at(at, flaw.message).hint(flaw.remedy);
        Some(ObjectError::Object(if path.is_empty() { invalid } else { invalid.under(&path) }))
    };
    upstreams.into_iter().find_map(flaw_at)
}

/// Refuses metadata of an unknown plugin.
pub(crate) fn plugin_name(state: &AdminState, name: &str) -> Result<(), String> {
    match state.registry.get(name).is_some() || state.missing.is_known(name) {
        true => Ok(()),
        false => Err("invalid plugin name".to_owned()),
    }
}

/// Whether lists and objects are nested deeper than `levels`.
fn is_deeper(value: &Value, levels: usize) -> bool {
    match value {
        Value::Object(members) => levels == 0 || members.values().any(|one| is_deeper(one, levels - 1)),
        Value::Array(items) => levels == 0 || items.iter().any(|one| is_deeper(one, levels - 1)),
        _ => false,
    }
}

/// Words an error as the Admin API does.
fn message(kind: Kind, value: &Value, flaw: ObjectError) -> String {
    match flaw {
        ObjectError::Object(invalid) => of_object(kind, value, invalid),
        ObjectError::Plugin { flaw: PluginSettingsError::NotAuthentication, .. } => {
            "only supports auth type plugins in consumer credential".to_owned()
        }
        ObjectError::Plugin { name, flaw } => {
            let message = of_plugin(kind, &name, flaw);
            match kind.descriptor().plugins.holds_keys() {
                true => format!("invalid plugins configuration: {message}"),
                false => message,
            }
        }
        ObjectError::Vars(message) => format!("failed to validate the 'vars' expression: {message}"),
        ObjectError::Address(at) => format!("invalid configuration: {}", of_address(value, at)),
        ObjectError::Certificate { at: 0, flaw } => of_pair(&flaw),
        // The text behind the prefix is that of OpenSSL in APISIX, so clients compare the prefix only.
        ObjectError::Upstream { path, message } if path.ends_with("tls.client_cert") => {
            format!("failed to parse cert: {path}: {message}")
        }
        ObjectError::Upstream { path, message } if path.ends_with("tls.client_key") => {
            format!("failed to parse key: {path}: {message}")
        }
        ObjectError::Upstream { path, message } => format!("invalid configuration: {path}: {message}"),
        // The messages of APISIX, and the gateway's own for rules beyond it.
        ObjectError::Handshake { path: "client.ca", message } => {
            format!("failed to validate client_cert: {message}")
        }
        ObjectError::Handshake { path: "client.skip_mtls_uri_regex", message } => {
            format!("failed to parse skip_mtls_uri_regex: {message}")
        }
        ObjectError::Handshake { path, message } => format!("invalid configuration: {path}: {message}"),
        ObjectError::Certificate { at, flaw } => {
            format!("failed to handle cert-key pair[{at}]: {}", of_pair(&flaw))
        }
    }
}

fn of_pair(flaw: &KeyPairError) -> String {
    match flaw.is_of_key() {
        true => format!("failed to parse key: {flaw}"),
        false => format!("failed to parse cert: {flaw}"),
    }
}

fn of_object(kind: Kind, value: &Value, invalid: InvalidSettings) -> String {
    // These rules are beyond the schema, so APISIX reports them without the prefix of schema errors.
    const PLAIN: [&str; 5] = [
        "mismatched number of certs and keys",
        "invalid secret manager: ",
        "only one of ",
        "`upstream_host` can't be empty when",
        "invalid port ",
    ];
    let InvalidSettings { path, message, .. } = invalid;
    match (kind, path.as_str(), message.as_str()) {
        // APISIX requires the pair in the branches of the schema for the type of the certificate.
        (Kind::Ssls, _, r#"property "cert" is required"# | r#"property "key" is required"#) => {
            let branch = if value.get("type").is_some_and(|kind| kind == "client") { "else" } else { "then" };
            return format!("{INVALID}{branch} clause did not match");
        }
        (Kind::StreamRoutes, "remote_addr" | "server_addr", _) if !message.starts_with("property ") => {
            let written = value.get(&path).and_then(Value::as_str).unwrap_or_default();
            // The pattern of APISIX's schema admits such texts, and a check behind it refuses them.
            let looks_like_ipv6_network = written.contains(':') && written.contains('/');
            return match looks_like_ipv6_network {
                true => format!("invalid {path}: {written}"),
                false => format!("{INVALID}property \"{path}\" validation failed: {NO_ADDRESS}"),
            };
        }
        _ => {}
    }
    match message == "missing key" || PLAIN.iter().any(|start| message.starts_with(start)) {
        true => message,
        false => format!("{INVALID}{message}"),
    }
}

fn of_plugin(kind: Kind, name: &str, flaw: PluginSettingsError) -> String {
    match flaw {
        // APISIX shows the value here, which may be a bare secret.
        PluginSettingsError::NotAnObject(found) => {
            format!("invalid plugin conf for plugin [{name}]: expected object, got {found}")
        }
        PluginSettingsError::Unknown => format!("unknown plugin [{name}]"),
        PluginSettingsError::Settings(invalid) if kind.descriptor().traffic == TrafficClass::Stream => {
            format!("failed to check the configuration of stream plugin [{name}]: {}", invalid.message)
        }
        PluginSettingsError::Settings(invalid) => {
            format!("failed to check the configuration of plugin {name} err: {}", invalid.message)
        }
        PluginSettingsError::Filter(message) => {
            format!("failed to validate the 'vars' expression: {message}")
        }
        PluginSettingsError::NotAuthentication => format!("plugin {name} is not an authentication plugin"),
    }
}

/// Addresses are checked beyond the schema; the message is that of APISIX's `anyOf` of formats.
fn of_address(value: &Value, at: usize) -> String {
    match value.get("remote_addr") {
        Some(_) => format!("property \"remote_addr\" validation failed: {NO_ADDRESS}"),
        None => {
            let item = at + 1;
            format!(
                "property \"remote_addrs\" validation failed: failed to validate item {item}: {NO_ADDRESS}"
            )
        }
    }
}

#[cfg(test)]
mod tests;
