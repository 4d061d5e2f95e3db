//! Header modifiers.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::rule::RuleDefect;
use crate::model::{HeaderModifier, NamedValue};

/// Fields that frame a message or manage its connection (RFC 9110 §7.6.1): the compiler refuses edits of them, and
/// with them the whole route.
pub(super) const FRAMING_FIELDS: [&str; 6] =
    ["connection", "content-length", "keep-alive", "te", "transfer-encoding", "upgrade"];

/// The form of a modifier in actions; `None` if it changes nothing.
pub(super) fn edits_value(modifier: &HeaderModifier) -> Result<Option<Value>, RuleDefect> {
    let mut members = Map::new();
    // Of several values to set for one name the first counts, as the API requires.
    let mut names = BTreeSet::new();
    let set: Vec<&NamedValue> =
        modifier.set.iter().filter(|one| names.insert(one.name.to_ascii_lowercase())).collect();
    for (name, list) in [("set", set), ("add", modifier.add.iter().collect())] {
        if !list.is_empty() {
            members.insert(name.to_owned(), pairs(&list)?);
        }
    }
    if !modifier.remove.is_empty() {
        for name in &modifier.remove {
            check_name(name)?;
        }
        members.insert("remove".to_owned(), modifier.remove.to_vec().into());
    }
    Ok((!members.is_empty()).then(|| members.into()))
}

fn pairs(list: &[&NamedValue]) -> Result<Value, RuleDefect> {
    let mut written = Vec::with_capacity(list.len());
    for NamedValue { name, value } in list {
        check_name(name)?;
        if value.chars().any(|character| character.is_control() && character != '\t') {
            return Err(RuleDefect::unsupported(format!(
                "the value of header {name} has control characters"
            )));
        }
        written.push(Value::from(vec![name.as_str(), value.as_str()]));
    }
    Ok(written.into())
}

fn check_name(name: &str) -> Result<(), RuleDefect> {
    if !is_token(name) {
        return Err(RuleDefect::unsupported(format!("{name:?} is no name of a header")));
    }
    match FRAMING_FIELDS.iter().any(|field| name.eq_ignore_ascii_case(field)) {
        true => {
            Err(RuleDefect::unsupported(format!("header {name} frames the message: the gateway sets it")))
        }
        false => Ok(()),
    }
}

/// Whether a text is a token (RFC 9110 §5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    let is_token_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_token_byte)
}
