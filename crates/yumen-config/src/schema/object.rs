//! Objects: declared, required and additional properties, and defaults.

use serde_json::{Map, Value};

use super::evaluate::{SchemaEvaluator, SchemaKeywords};
use super::{InvalidSettings, patterns, unknown};
use crate::hint::suggestion;

/// Validates an object and fills in its defaults.
pub(super) fn check(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    instance: &mut Value,
) -> Result<(), InvalidSettings> {
    // First, so that the defaults exist when the other keywords are checked.
    if let (Some(properties), Some(members)) = (k.object.properties, instance.as_object_mut()) {
        let count = members.len();
        let named = check_properties(ev, k, properties, members)?;
        if named < count && k.object.additional_properties.is_none() && k.object.pattern_properties.is_none()
        {
            unknown::notice();
        }
    }
    if let (Some(required), Some(members)) = (k.object.required, instance.as_object()) {
        for name in required.iter().filter_map(Value::as_str) {
            // A default satisfies the requirement.
            let defaulted = || k.object.properties.and_then(|p| p.get(name)).and_then(default_of).is_some();
            if !members.contains_key(name) && !defaulted() {
                return ev.refuse_at(name, || format!("property \"{name}\" is required"));
            }
        }
    }
    if let Some(dependencies) = k.object.dependencies {
        check_dependencies(ev, dependencies, instance)?;
    }
    // Taken again, because a dependent schema had the whole instance.
    let Some(members) = instance.as_object_mut() else { return Ok(()) };
    if let Some(schema) = k.object.property_names {
        check_names(ev, schema, members)?;
    }
    if k.object.pattern_properties.is_some() || k.object.additional_properties.is_some() {
        check_others(ev, k, members)?;
    }
    let count = members.len() as u64;
    if let Some(min) = k.object.properties_min.filter(|min| count < *min) {
        return ev.refuse(|| format!("expect object to have at least {min} properties"));
    }
    if let Some(max) = k.object.properties_max.filter(|max| count > *max) {
        return ev.refuse(|| format!("expect object to have at most {max} properties"));
    }
    Ok(())
}

/// Returns the number of members that the schema names.
fn check_properties(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    properties: &Map<String, Value>,
    members: &mut Map<String, Value>,
) -> Result<usize, InvalidSettings> {
    let mut named = 0;
    for (name, schema) in properties {
        if let Some(member) = members.get_mut(name) {
            named += 1;
            let inner = ev.check(schema, member);
            ev.wrap(
                inner,
                || name.clone(),
                |inner| format!("property \"{name}\" validation failed: {inner}"),
            )?;
        } else if let Some(default) = default_of(schema) {
            if ev.complete {
                members.insert(name.clone(), default.clone());
            }
        } else if k.object.required.is_some_and(|required| required.iter().any(|other| other == name)) {
            ev.refuse_at(name, || format!("property \"{name}\" is required"))?;
        }
    }
    Ok(named)
}

/// Schemas are short: comparing each keyword is faster than hashing one.
fn default_of(schema: &Value) -> Option<&Value> {
    schema.as_object()?.iter().find(|(keyword, _)| *keyword == "default").map(|(_, default)| default)
}

fn check_dependencies(
    ev: SchemaEvaluator<'_>,
    dependencies: &Map<String, Value>,
    instance: &mut Value,
) -> Result<(), InvalidSettings> {
    for (name, needed) in dependencies {
        // A dependency applies only where its member is present (draft-07 validation §6.5.7).
        if instance.get(name).is_none() {
            continue;
        }
        let Value::Array(needed) = needed else {
            let inner = ev.check(needed, instance);
            ev.wrap(inner, String::new, |inner| {
                format!("failed to validate dependent schema for \"{name}\": {inner}")
            })?;
            continue;
        };
        for other in needed.iter().filter_map(Value::as_str) {
            if instance.get(other).is_none() {
                return ev
                    .refuse_at(other, || format!("property \"{other}\" is required when \"{name}\" is set"));
            }
        }
    }
    Ok(())
}

fn check_names(
    ev: SchemaEvaluator<'_>,
    schema: &Value,
    members: &Map<String, Value>,
) -> Result<(), InvalidSettings> {
    for name in members.keys() {
        let inner = ev.check(schema, &mut Value::from(name.as_str()));
        ev.wrap(inner, || name.clone(), |inner| format!("failed to validate the name {name}: {inner}"))?;
    }
    Ok(())
}

/// Validates `patternProperties`, and `additionalProperties` for members that neither a name nor a pattern
/// covers.
fn check_others(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    members: &mut Map<String, Value>,
) -> Result<(), InvalidSettings> {
    for (name, member) in members.iter_mut() {
        let mut covered = k.object.properties.is_some_and(|properties| properties.contains_key(name));
        for (pattern, schema) in k.object.pattern_properties.into_iter().flatten() {
            // `.*` matches every name, so the common case needs no regular expression.
            if pattern != ".*" && !patterns::compiled(pattern).is_some_and(|regex| regex.is_match(name)) {
                continue;
            }
            // Further patterns apply too (draft-07 validation §6.5.5), so the search continues.
            covered = true;
            let inner = ev.check(schema, member);
            ev.wrap(
                inner,
                || name.clone(),
                |inner| format!("failed to validate {name} (matching \"{pattern}\"): {inner}"),
            )?;
        }
        match k.object.additional_properties {
            // The common values need no look at the member.
            None | Some(Value::Bool(true)) => {}
            _ if covered => {}
            Some(Value::Bool(false)) => {
                let remedy = ev.builds_hints().then(|| meant(name, k.object.properties)).flatten();
                return ev.refuse_at(name, || forbidden_message(name)).map_err(|refused| match remedy {
                    Some(remedy) => refused.hint(remedy),
                    None => refused,
                });
            }
            Some(schema) => {
                let inner = ev.check(schema, member);
                ev.wrap(
                    inner,
                    || name.clone(),
                    |inner| format!("failed to validate additional property {name}: {inner}"),
                )?;
            }
        }
    }
    Ok(())
}

/// The message of APISIX about a member that the schema forbids.
pub(super) fn forbidden_message(name: &str) -> String {
    format!("additional properties forbidden, found {name}")
}

/// A hint at the named member that a forbidden one probably stands for.
pub(super) fn meant(name: &str, properties: Option<&Map<String, Value>>) -> Option<String> {
    suggestion(name, properties?.keys().map(String::as_str))
}
