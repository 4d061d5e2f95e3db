//! References to the environment: decK's `${{ env "NAME" }}` and Kong's `{vault://env/name}`.
//!
//! A reference that cannot be resolved becomes null, never a text that an attacker could guess as a secret.

use std::collections::HashMap;

use serde_json::{Map, Value, json};
use yumen_config::yaml;

use super::deck::{DeckPiece, DeckTemplates};
use super::entity::{UNREADABLE, UNSET_FIELDS, UNSET_NAME};
use crate::report::{ImportReport, dropped};

/// Collections whose objects list the fields that could not be resolved, in [`UNSET_FIELDS`].
const MARKED: [&str; 6] = ["acls", "consumers", "consumer_groups", "plugins", "routes", "services"];

/// Objects whose members are marked in the same way.
const MARKED_MEMBERS: [&str; 2] = ["_plugin_configs", "_info.defaults"];

/// The member that contains a value.
#[derive(Debug, Clone, Copy)]
enum ValuePlace<'n> {
    /// The value of the member.
    Member(&'n str),
    /// An item of the member's list.
    Item(&'n str),
}

/// Looks up an environment variable.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Resolves references.
pub(super) struct KongEnvironment<'a> {
    lookup: Lookup<'a>,
    /// Prefix of variable names, by the name of the vault.
    vaults: HashMap<String, String>,
    templates: DeckTemplates,
}

impl<'a> KongEnvironment<'a> {
    /// For a document that was parsed with the markers of `templates`.
    pub(super) fn new(lookup: Lookup<'a>, document: &Value, templates: DeckTemplates) -> KongEnvironment<'a> {
        let mut vaults = HashMap::from([("env".to_owned(), String::new())]);
        let entities = document.get("vaults").and_then(Value::as_array).into_iter().flatten();
        for vault in entities.filter(|vault| vault["name"] == "env") {
            if let Some(prefix) = vault["prefix"].as_str() {
                let variables = vault["config"]["prefix"].as_str().unwrap_or("");
                vaults.insert(prefix.to_owned(), variables.to_owned());
            }
        }
        KongEnvironment { lookup, vaults, templates }
    }

    /// Resolves all references inside a document.
    pub(super) fn resolve(&self, document: &mut Value, report: &mut ImportReport) {
        self.resolve_at(document, "", ValuePlace::Member(""), report);
    }

    /// Resolves all references inside `value`, whose path in the file is `path`. `true` if one of them could not be
    /// resolved and no object lists it.
    fn resolve_at(
        &self,
        value: &mut Value,
        path: &str,
        place: ValuePlace<'_>,
        report: &mut ImportReport,
    ) -> bool {
        match value {
            Value::Array(items) => {
                let mut is_unset = false;
                let (ValuePlace::Member(name) | ValuePlace::Item(name)) = place;
                for (at, item) in items.iter_mut().enumerate() {
                    let path = format!("{path}[{at}]");
                    is_unset |= self.resolve_at(item, &path, ValuePlace::Item(name), report);
                }
                is_unset
            }
            Value::Object(members) => self.resolve_members(members, path, place, report),
            Value::String(text) => {
                let Some(resolved) = self.text(text).transpose() else { return false };
                let is_unset = resolved.is_err();
                *value = resolved.unwrap_or_else(|message| {
                    let hint = "set it and import again";
                    report.add(dropped("file", path, "left out").why(message).hint(hint));
                    match place {
                        // A plugin that cannot be read may guard.
                        ValuePlace::Item("plugins") => json!({ "name": UNREADABLE }),
                        ValuePlace::Member("plugins") => json!([{ "name": UNREADABLE }]),
                        _ => Value::Null,
                    }
                });
                is_unset
            }
            _ => false,
        }
    }

    fn resolve_members(
        &self,
        members: &mut Map<String, Value>,
        path: &str,
        place: ValuePlace<'_>,
        report: &mut ImportReport,
    ) -> bool {
        let mut unset: Vec<Value> = Vec::new();
        if members.keys().any(|name| self.templates.are_in(name)) {
            let before = members.len();
            *members = self.with_resolved_names(std::mem::take(members), path, report);
            if members.len() < before {
                unset.push(UNSET_NAME.into());
            }
        }
        for (name, member) in members.iter_mut() {
            let dot = if path.is_empty() { "" } else { "." };
            if self.resolve_at(member, &format!("{path}{dot}{name}"), ValuePlace::Member(name), report) {
                match member {
                    Value::Object(fields) if MARKED_MEMBERS.contains(&path) => {
                        fields.insert(UNSET_FIELDS.to_owned(), json!([UNSET_NAME]));
                    }
                    _ => unset.push(name.as_str().into()),
                }
            }
        }
        if unset.is_empty() {
            return false;
        }
        // The settings of a plugin may have lists with the names of collections.
        let is_marked =
            matches!(place, ValuePlace::Item(name) if MARKED.contains(&name)) && !path.contains(".config");
        if is_marked {
            members.insert(UNSET_FIELDS.to_owned(), unset.into());
        }
        !is_marked
    }

    /// Members whose names contain references. A member without a resolved name is left out and reported.
    fn with_resolved_names(
        &self,
        members: Map<String, Value>,
        path: &str,
        report: &mut ImportReport,
    ) -> Map<String, Value> {
        let mut out = Map::new();
        for (name, member) in members {
            match self.text(&name) {
                Ok(None) => drop(out.insert(name, member)),
                Ok(Some(Value::String(name))) => drop(out.insert(name, member)),
                Ok(Some(other)) => drop(out.insert(other.to_string(), member)),
                Err(message) => report.add(dropped("file", path, "a member is left out").why(message)),
            }
        }
        out
    }

    /// The value of a text with references; `None` without any.
    fn text(&self, text: &str) -> Result<Option<Value>, String> {
        if let Some(reference) = text.strip_prefix("{vault://").and_then(|rest| rest.strip_suffix('}')) {
            return self.vault(reference).map(Some);
        }
        let pieces = self.templates.pieces(text)?;
        if let [DeckPiece::Template { inside, is_quoted }] = pieces.as_slice() {
            let value = self.deck(inside)?;
            // decK renders before it reads YAML, so a list may come from a variable. A scalar remains text.
            let structure = value.as_str().filter(|_| !is_quoted).and_then(structure);
            return Ok(Some(structure.unwrap_or(value)));
        }
        if !pieces.iter().any(|piece| matches!(piece, DeckPiece::Template { .. })) {
            return Ok(None);
        }
        let mut out = String::new();
        for piece in &pieces {
            match piece {
                DeckPiece::Text(text) => out.push_str(text),
                DeckPiece::Template { inside, .. } => match self.deck(inside)? {
                    Value::String(value) => out.push_str(&value),
                    other => out.push_str(&other.to_string()),
                },
            }
        }
        Ok(Some(Value::String(out)))
    }

    /// Resolves `env "NAME"`, optionally followed by functions such as `| toInt`.
    fn deck(&self, inside: &str) -> Result<Value, String> {
        // Dashes trim the text around a template; in a JSON file its quotes are escaped.
        let inside = inside.trim().trim_start_matches("- ").trim_end_matches(" -").replace("\\\"", "\"");
        let mut parts = inside.split('|').map(str::trim);
        let name = parts.next().and_then(|call| call.strip_prefix("env")).map(str::trim);
        let quoted = |quote: char| name.and_then(|name| name.strip_prefix(quote)?.strip_suffix(quote));
        let name = quoted('"').or_else(|| quoted('`'));
        let name = name.ok_or_else(|| format!("\"{}\" is no reference to a variable", inside.trim()))?;
        let mut value = Value::String(self.variable(name)?);
        for function in parts {
            let text = value.as_str().unwrap_or_default();
            value = match function.split_whitespace().next().unwrap_or_default() {
                "toInt" => {
                    text.trim().parse::<i64>().map(Value::from).map_err(|_| not(name, "an integer"))?
                }
                "toFloat" => {
                    text.trim().parse::<f64>().map(Value::from).map_err(|_| not(name, "a number"))?
                }
                "toBool" => {
                    text.trim().parse::<bool>().map(Value::from).map_err(|_| not(name, "a boolean"))?
                }
                // The depth of a block in YAML, which was parsed before.
                "indent" | "trim" => Value::String(text.trim().to_owned()),
                _ => return Err(format!("the function {function} is not known")),
            };
        }
        Ok(value)
    }

    fn vault(&self, reference: &str) -> Result<Value, String> {
        let (location, options) = reference.split_once('?').unwrap_or((reference, ""));
        let (vault, path) = location.split_once('/').ok_or("a reference is {vault://vault/name}")?;
        let Some(prefix) = self.vaults.get(vault) else {
            return Err(format!("the vault {vault} is not the environment, and no other is asked"));
        };
        let prefix = options.split('&').find_map(|option| option.strip_prefix("prefix=")).unwrap_or(prefix);
        let (name, key) = path.split_once('/').map_or((path, None), |(name, key)| (name, Some(key)));
        let variable = format!("{prefix}{name}").replace('-', "_").to_uppercase();
        let text = self.variable(&variable)?;
        let Some(key) = key else { return Ok(Value::String(text)) };
        let parsed: Value = serde_json::from_str(&text).map_err(|_| not(&variable, "a JSON object"))?;
        parsed.get(key).cloned().ok_or_else(|| format!("the environment variable {variable} holds no {key}"))
    }

    fn variable(&self, name: &str) -> Result<String, String> {
        (self.lookup)(name).ok_or_else(|| format!("the environment variable {name} is not set"))
    }
}

/// A list or an object in the text of a variable.
fn structure(text: &str) -> Option<Value> {
    let parsed: Value = serde_yaml_ng::from_str(yaml::bounded(text).ok()?).ok()?;
    (parsed.is_array() || parsed.is_object())
        .then_some(parsed)
        .filter(|_| text.trim_start().starts_with(['[', '{']))
}

fn not(variable: &str, what: &str) -> String {
    format!("the environment variable {variable} is not {what}")
}
