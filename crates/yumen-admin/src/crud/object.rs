//! Validation of an object before its write: id, times, schema.

use serde_json::{Map, Value};
use yumen_config::Kind;
use yumen_config::resource::{IdRule, is_dot_segment, is_plain_id};
use yumen_store::ResourceKey;

use super::target::CrudTarget;
use crate::api::AdminState;
use crate::index::facts::id_in;
use crate::refusal::ApiRefusal;
use crate::validate;

const TIMES: [&str; 2] = ["create_time", "update_time"];
const SECRET_MANAGERS: [&str; 3] = ["vault", "aws", "gcp"];

/// A validated object without its times.
pub(crate) struct ValidatedObject {
    /// `None` if the store chooses the id.
    pub(crate) key: Option<ResourceKey>,
    pub(crate) object: Map<String, Value>,
}

/// Validates the body of a PUT and determines its key.
pub(crate) fn put(
    state: &AdminState,
    target: &CrudTarget,
    body: Option<Value>,
) -> Result<ValidatedObject, ApiRefusal> {
    let kind = target.kind;
    let rule = kind.descriptor().id;
    if rule == IdRule::WithinManager && (target.id.is_none() || target.parent.is_none()) {
        return Err(ApiRefusal::invalid("no secret id"));
    }
    check_manager(target)?;
    let mut object = object_of(state, kind, body)?;
    let id = match rule {
        // The id in the path is only compared: the body identifies a consumer.
        IdRule::Username => return named_by_username(state, target, object),
        IdRule::PluginName => return named_by_plugin(state, target, object),
        IdRule::WithinManager => target.id.as_deref().map(|id| target.stored_id(id)),
        IdRule::Name | IdRule::WithinParent => target.id.clone().or_else(|| id_in(&object, "id")),
    };
    let id =
        id.ok_or_else(|| ApiRefusal::invalid(format!("missing {} id", kind.descriptor().names.label)))?;
    if object.contains_key("id") && id_in(&object, "id").as_deref() != Some(&id) {
        return Err(ApiRefusal::invalid(format!("wrong {} id", kind.descriptor().names.label)));
    }
    // An id in the body alone stays as written, which may be a number.
    if !(target.id.is_none() && object.contains_key("id")) {
        object.insert("id".to_owned(), Value::String(id.clone()));
    }
    check_times(&object)?;
    validate(state, kind, &object)?;
    // After validation, so that the schema's message about an invalid id takes precedence.
    check_id(target.id.as_deref().unwrap_or(&id))?;
    let stored = if rule == IdRule::WithinManager { id } else { target.stored_id(&id) };
    Ok(ValidatedObject { key: Some(ResourceKey::new(kind, stored)), object })
}

/// Validates the body of a POST.
pub(crate) fn post(
    state: &AdminState,
    target: &CrudTarget,
    body: Option<Value>,
) -> Result<ValidatedObject, ApiRefusal> {
    let object = object_of(state, target.kind, body)?;
    if target.id.is_some() || object.contains_key("id") {
        return Err(ApiRefusal::invalid(format!(
            "wrong {} id, do not need it",
            target.kind.descriptor().names.label
        )));
    }
    check_times(&object)?;
    validate(state, target.kind, &object)?;
    Ok(ValidatedObject { key: None, object })
}

/// Validates the result of a PATCH. Times are allowed in the body. An object of other tools may lack its id, which is
/// added.
pub(crate) fn patched(
    state: &AdminState,
    key: &ResourceKey,
    object: &mut Map<String, Value>,
) -> Result<(), ApiRefusal> {
    let called = match key.kind.descriptor().id {
        IdRule::WithinParent => key.id.rsplit('/').next().unwrap_or_default(),
        IdRule::Name | IdRule::PluginName | IdRule::Username | IdRule::WithinManager => &*key.id,
    };
    if !object.contains_key("id") {
        object.insert("id".to_owned(), called.into());
    }
    if id_in(object, "id").as_deref() != Some(called) {
        return Err(ApiRefusal::invalid(format!("wrong {} id", key.kind.descriptor().names.label)));
    }
    let mut timeless = object.clone();
    for time in TIMES {
        // Only the type is checked: the values are replaced or kept as they are.
        if timeless.shift_remove(time).is_some_and(|value| !value.is_i64()) {
            return Err(ApiRefusal::invalid(format!(
                "invalid configuration: property \"{time}\" validation failed: wrong type: expected integer"
            )));
        }
    }
    // The schema for writes forbids times, which a PATCH may contain.
    validate(state, key.kind, &timeless)
}

/// Sets the times of an object; the time of creation is that of the replaced object.
pub(crate) fn set_times(object: &mut Map<String, Value>, created: Option<Value>, now_s: u64) {
    for (name, time) in TIMES.into_iter().zip([created.unwrap_or(now_s.into()), now_s.into()]) {
        // Removed first, so that times come last in the text.
        object.shift_remove(name);
        object.insert(name.to_owned(), time);
    }
}

fn object_of(state: &AdminState, kind: Kind, body: Option<Value>) -> Result<Map<String, Value>, ApiRefusal> {
    match body {
        None | Some(Value::Null) => Err(ApiRefusal::invalid("missing configurations")),
        Some(Value::Object(object)) => Ok(object),
        Some(value) => {
            // The schema's message about the wrong type takes precedence.
            validate::object(state, kind, &value).map_err(ApiRefusal::from)?;
            Err(ApiRefusal::invalid("invalid configuration: it must be an object"))
        }
    }
}

fn validate(state: &AdminState, kind: Kind, object: &Map<String, Value>) -> Result<(), ApiRefusal> {
    let value = Value::Object(object.clone());
    validate::object(state, kind, &value).map_err(ApiRefusal::from)
}

fn named_by_username(
    state: &AdminState,
    target: &CrudTarget,
    object: Map<String, Value>,
) -> Result<ValidatedObject, ApiRefusal> {
    check_times(&object)?;
    validate(state, target.kind, &object)?;
    let name = object.get("username").and_then(Value::as_str).unwrap_or_default();
    if target.id.as_deref().is_some_and(|id| id != name) {
        return Err(ApiRefusal::invalid("wrong username"));
    }
    if is_dot_segment(name) {
        return Err(ApiRefusal::invalid(format!(
            "invalid configuration: property \"username\" validation failed: \"{name}\" must be neither . nor .."
        )));
    }
    Ok(ValidatedObject { key: Some(ResourceKey::new(target.kind, name)), object })
}

fn named_by_plugin(
    state: &AdminState,
    target: &CrudTarget,
    mut object: Map<String, Value>,
) -> Result<ValidatedObject, ApiRefusal> {
    let name = target.id.as_deref().ok_or_else(|| ApiRefusal::invalid("missing plugin name"))?;
    validate::plugin_name(state, name).map_err(ApiRefusal::invalid)?;
    check_times(&object)?;
    object.insert("id".to_owned(), name.into());
    validate(state, target.kind, &object)?;
    Ok(ValidatedObject { key: Some(ResourceKey::new(target.kind, name)), object })
}

fn check_manager(target: &CrudTarget) -> Result<(), ApiRefusal> {
    match &target.parent {
        Some(manager)
            if target.kind.descriptor().id == IdRule::WithinManager
                && !SECRET_MANAGERS.contains(&manager.as_str()) =>
        {
            Err(ApiRefusal::invalid(format!("invalid secret manager: {manager}")))
        }
        _ => Ok(()),
    }
}

/// Rejects times, which only the gateway sets: in the object, and where tools may have copied them.
fn check_times(object: &Map<String, Value>) -> Result<(), ApiRefusal> {
    let inner = |name: &str| object.get(name).and_then(Value::as_object);
    for (prefix, object) in
        [("", Some(object)), ("upstream.", inner("upstream")), ("plugins.", inner("plugins"))]
    {
        let written = object.and_then(|object| TIMES.into_iter().find(|time| object.contains_key(*time)));
        if let Some(time) = written {
            return Err(ApiRefusal::invalid(format!("the property is forbidden: {prefix}{time}")));
        }
    }
    Ok(())
}

/// Checks an id, which becomes part of the key in the store, even if the schema does not.
fn check_id(id: &str) -> Result<(), ApiRefusal> {
    match is_plain_id(id) {
        true => Ok(()),
        false if is_dot_segment(id) => Err(ApiRefusal::invalid(format!(
            "invalid configuration: property \"id\" validation failed: \"{id}\" must be neither . nor .."
        ))),
        false => Err(ApiRefusal::invalid(format!(
            "invalid configuration: property \"id\" validation failed: \"{id}\" must be 1 to 64 of a-z A-Z 0-9 - _ ."
        ))),
    }
}
