//! The identity of an item in a document.

use serde_json::{Map, Value};

use crate::resource::{IdRule, Kind, ResourceDefect, is_dot_segment};

/// Result of reading the id of an item.
pub(super) enum ItemIdentity {
    /// A valid id, with its kind: a list of consumers may contain credentials.
    Known(Kind, String),
    /// The item has no id.
    Absent,
    /// The id is invalid or incomplete.
    Unusable(ResourceDefect),
}

/// Reads the id of an item in the list of `kind`, and removes the owner of a credential from its members.
pub(super) fn stated(kind: Kind, members: &mut Map<String, Value>) -> ItemIdentity {
    match identify(kind, members) {
        Ok(Some((kind, id))) => ItemIdentity::Known(kind, id),
        Ok(None) => ItemIdentity::Absent,
        Err(why) => ItemIdentity::Unusable(why),
    }
}

fn identify(kind: Kind, members: &mut Map<String, Value>) -> Result<Option<(Kind, String)>, ResourceDefect> {
    // YAML reads an empty `id:` as null.
    if members.get("id").is_some_and(Value::is_null) {
        members.shift_remove("id");
    }
    let id = written_id(members)?;
    let (kind, id) = match (kind.descriptor().id, id) {
        (IdRule::Username, Some(id)) if id.contains("/credentials/") => (Kind::Credentials, id),
        (IdRule::Username, id) => match members.get("username").and_then(Value::as_str) {
            Some(username) => (kind, username.to_owned()),
            None if id.is_some() => return Err(missing("username")),
            None => return Err(missing("username").hint("a consumer is identified by its username")),
        },
        (IdRule::WithinParent, Some(id)) if !id.contains('/') => {
            let owner = ["username", "consumer"].iter().find_map(|field| members.shift_remove(*field));
            match owner {
                Some(Value::String(owner)) => (kind, format!("{owner}/credentials/{id}")),
                _ => return Err(missing("username").hint("or write the id as user/credentials/id")),
            }
        }
        (IdRule::PluginName, None) => {
            return Err(missing("id").hint("the id is the name of the plugin"));
        }
        (IdRule::Name | IdRule::PluginName | IdRule::WithinParent | IdRule::WithinManager, Some(id)) => {
            (kind, id)
        }
        (IdRule::Name | IdRule::WithinParent | IdRule::WithinManager, None) => return Ok(None),
    };
    match kind.descriptor().id.admits(&id) {
        true => Ok(Some((kind, id))),
        false => Err(ResourceDefect::new("id", format!("\"{id}\" is not a valid id")).hint(
            match id.split('/').any(is_dot_segment) {
                true => "clients remove the parts . and .. from a URL: rename it",
                false => "1 to 64 of a-z A-Z 0-9 - _ . are allowed",
            },
        )),
    }
}

pub(super) fn missing(field: &str) -> ResourceDefect {
    ResourceDefect::new(field, format!("property \"{field}\" is required"))
}

fn written_id(members: &Map<String, Value>) -> Result<Option<String>, ResourceDefect> {
    match members.get("id") {
        None => Ok(None),
        Some(Value::String(id)) => Ok(Some(id.clone())),
        Some(Value::Number(id)) if id.as_u64().is_some_and(|id| id >= 1) => Ok(Some(id.to_string())),
        Some(other) => Err(ResourceDefect::new("id", format!("{other} is not a valid id"))
            .hint("an id is text or an integer from 1")),
    }
}
