//! Arrays and combinators such as `anyOf`.
//!
//! Branches are first tried without changing the instance; then the matching branch completes it. Defaults of
//! a failed branch therefore never leak into the settings.

use std::collections::HashMap;
use std::hash::RandomState;

use serde_json::Value;

use super::InvalidSettings;
use super::evaluate::{SchemaEvaluator, SchemaKeywords};
use super::{reference, remedy, scalar};

/// Array length up to which comparing all pairs is cheaper than hashing.
const PAIRS_MAX: usize = 32;

/// Validates an array.
pub(super) fn array(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    instance: &mut Value,
) -> Result<(), InvalidSettings> {
    // Keywords for arrays accept other values.
    let Some(items) = instance.as_array_mut() else { return Ok(()) };
    match k.array.items {
        // One schema per position (draft-07 validation §6.4.1).
        Some(Value::Array(tuple)) => check_tuple(ev, k, tuple, items)?,
        Some(schema) => {
            for (i, item) in items.iter_mut().enumerate() {
                check_item(ev, schema, i, item)?;
            }
        }
        None => {}
    }
    let count = items.len() as u64;
    if let Some(min) = k.array.items_min.filter(|min| count < *min) {
        return ev.refuse(|| format!("expect array to have at least {min} items"));
    }
    if let Some(max) = k.array.items_max.filter(|max| count > *max) {
        return ev.refuse(|| format!("expect array to have at most {max} items"));
    }
    // The cost of comparing items grows with their size.
    if k.array.unique_items && !ev.spend(items.iter().map(reference::parts).sum()) {
        return ev.refuse(|| "the value takes too many steps to be evaluated".into());
    }
    if k.array.unique_items
        && let Some((first, second)) = equal_pair(items)
    {
        return ev.refuse_at(&format!("[{second}]"), || {
            format!("expected unique items but items {} and {} are equal", first + 1, second + 1)
        });
    }
    Ok(())
}

fn check_item(
    ev: SchemaEvaluator<'_>,
    schema: &Value,
    i: usize,
    item: &mut Value,
) -> Result<(), InvalidSettings> {
    let inner = ev.check(schema, item);
    ev.wrap(inner, || format!("[{i}]"), |inner| format!("failed to validate item {}: {inner}", i + 1))
}

fn check_tuple(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    tuple: &[Value],
    items: &mut [Value],
) -> Result<(), InvalidSettings> {
    for (i, item) in items.iter_mut().enumerate() {
        match (tuple.get(i), k.array.additional_items) {
            (Some(schema), _) => check_item(ev, schema, i, item)?,
            (None, Some(Value::Bool(false))) => {
                return ev.refuse_at(&format!("[{i}]"), || "found unexpected extra items in array".into());
            }
            (None, Some(schema)) => check_item(ev, schema, i, item)?,
            // Without `additionalItems`, further items are valid.
            (None, None) => break,
        }
    }
    Ok(())
}

fn equal_pair(items: &[Value]) -> Option<(usize, usize)> {
    if items.len() > PAIRS_MAX {
        // A random seed, so that a user cannot construct colliding items.
        let hasher = RandomState::new();
        let mut seen: HashMap<u64, Vec<usize>> = HashMap::with_capacity(items.len());
        return items.iter().enumerate().find_map(|(i, item)| {
            let alike = seen.entry(scalar::hash(&hasher, item)).or_default();
            // Items with one hash may still differ.
            let first = alike.iter().copied().find(|first| scalar::equal(&items[*first], item));
            alike.push(i);
            first.map(|first| (first, i))
        });
    }
    (1..items.len())
        .flat_map(|second| (0..second).map(move |first| (first, second)))
        .find(|(first, second)| scalar::equal(&items[*first], &items[*second]))
}

/// Validates `allOf`, `anyOf`, `oneOf`, `if`, `not`, in that order.
pub(super) fn combinators(
    ev: SchemaEvaluator<'_>,
    k: &SchemaKeywords<'_>,
    instance: &mut Value,
) -> Result<(), InvalidSettings> {
    for (i, schema) in k.branches.all_of.unwrap_or_default().iter().enumerate() {
        let inner = ev.check(schema, instance);
        ev.wrap(inner, String::new, |inner| format!("allOf {} failed: {inner}", i + 1))?;
    }
    // `allOf` has completed the value by now, so its defaults count for the branches.
    if let Some(branches) = k.branches.any_of {
        any_of(ev, branches, instance)?;
    }
    if let Some(branches) = k.branches.one_of {
        one_of(ev, branches, instance)?;
    }
    if let Some(condition) = k.branches.condition {
        conditional(ev, condition, k, instance)?;
    }
    match k.branches.not {
        // A trial: a schema that must not match has no defaults to give.
        Some(schema) if ev.trying().check(schema, instance).is_ok() => {
            ev.refuse(|| "value wasn't supposed to match schema".into())
        }
        _ => Ok(()),
    }
}

fn any_of(ev: SchemaEvaluator<'_>, branches: &[Value], instance: &mut Value) -> Result<(), InvalidSettings> {
    // The first match suffices, and it alone gives defaults.
    match branches.iter().find(|branch| ev.trying().check(branch, instance).is_ok()) {
        Some(branch) => complete(ev, branch, instance),
        None => ev
            .refuse(|| {
                // The usual use is a choice of required members, so the message lists them.
                let sets: Vec<String> = branches
                    .iter()
                    .filter_map(|branch| branch.get("required").map(Value::to_string))
                    .collect();
                match sets.is_empty() {
                    true => "object matches none of the required".into(),
                    false => format!("object matches none of the required: {}", sets.join(" or ")),
                }
            })
            .map_err(|refused| with_remedy(ev, refused, branches, instance)),
    }
}

/// The refusal with a hint at the branch that the value comes closest to: the only one for its type, or the members that
/// the branches require.
fn with_remedy(
    ev: SchemaEvaluator<'_>,
    refused: InvalidSettings,
    branches: &[Value],
    instance: &Value,
) -> InvalidSettings {
    if !ev.builds_hints() {
        return refused;
    }
    // A branch of further alternatives is not part of APISIX's message, nor of the hint.
    let is_of_members = |branch: &Value| branch.get("required").is_some() || branch.get("anyOf").is_some();
    if branches.iter().all(is_of_members) {
        return refused.with_hint(remedy::of_required(branches, instance));
    }
    // Faults inside objects and lists are reported one by one (`faults`).
    if matches!(instance, Value::Object(_) | Value::Array(_)) {
        return refused;
    }
    let typed = |branch: &&Value| {
        let name = branch.get("type").and_then(Value::as_str);
        name.is_some_and(|name| scalar::is_of_type(name, instance))
    };
    let mut same_type = branches.iter().filter(typed);
    let (Some(branch), None) = (same_type.next(), same_type.next()) else { return refused };
    match ev.explaining().check(branch, &mut instance.clone()) {
        Err(inner) => refused.hint(inner.message),
        Ok(()) => refused,
    }
}

fn one_of(ev: SchemaEvaluator<'_>, branches: &[Value], instance: &mut Value) -> Result<(), InvalidSettings> {
    let mut matched = None;
    for (i, branch) in branches.iter().enumerate() {
        // All branches see the same value, because a trial does not complete it.
        if ev.trying().check(branch, instance).is_err() {
            continue;
        }
        // A second match decides; the other branches need no trial.
        if let Some(first) = matched.replace(i) {
            return ev
                .refuse(|| {
                    let (first, second) = (first + 1, i + 1);
                    format!(
                        "value should match only one schema, but matches both schemas {first} and {second}"
                    )
                })
                .map_err(|refused| match (required(&branches[first]), required(branch)) {
                    (Some(one), Some(other)) if ev.builds_hints() => {
                        refused.hint(format!("keep {one}, or {other}"))
                    }
                    _ => refused,
                });
        }
    }
    match matched {
        Some(i) => complete(ev, &branches[i], instance),
        None => ev
            .refuse(|| "value should match only one schema, but matches none".into())
            .map_err(|refused| with_remedy(ev, refused, branches, instance)),
    }
}

/// The members that a branch requires, in words.
fn required(branch: &Value) -> Option<String> {
    let names = branch.get("required")?.as_array()?.iter().filter_map(Value::as_str);
    Some(names.collect::<Vec<_>>().join(" and "))
}

fn complete(ev: SchemaEvaluator<'_>, branch: &Value, instance: &mut Value) -> Result<(), InvalidSettings> {
    // Within a trial the branch has been checked already, and nothing may be completed.
    if ev.complete { ev.check(branch, instance) } else { Ok(()) }
}

fn conditional(
    ev: SchemaEvaluator<'_>,
    condition: &Value,
    k: &SchemaKeywords<'_>,
    instance: &mut Value,
) -> Result<(), InvalidSettings> {
    let (clause, name) = match ev.trying().check(condition, instance).is_ok() {
        true => (k.branches.then, "then"),
        false => (k.branches.otherwise, "else"),
    };
    // An absent clause accepts everything (draft-07 validation §6.6).
    let Some(clause) = clause else { return Ok(()) };
    // The path still leads to the innermost fault. The message and the rule do not: the message is a contract with the
    // tools of APISIX. The fault itself is the remedy.
    ev.check(clause, instance).map_err(|inner| match ev.builds_messages {
        true => {
            let cause = inner.message.rsplit(" validation failed: ").next().map(str::to_owned);
            let cause = inner.hint.or(cause);
            InvalidSettings::at(inner.path, format!("{name} clause did not match")).with_hint(cause)
        }
        false => inner,
    })
}

/// Validates `contains`: at least one item must match.
pub(super) fn contains(
    ev: SchemaEvaluator<'_>,
    schema: &Value,
    instance: &mut Value,
) -> Result<(), InvalidSettings> {
    let Value::Array(items) = instance else { return Ok(()) };
    // A trial, because a matching item must not receive defaults from `contains`.
    let fits = items.iter_mut().any(|item| ev.trying().check(schema, item).is_ok());
    if fits { Ok(()) } else { ev.refuse(|| "array does not contain any valid item".into()) }
}
