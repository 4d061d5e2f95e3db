//! JSONPath as `data-mask` uses it (RFC 9535 §2): members, indices, wildcards and descendants.

use serde_json::Value;

/// A compiled path.
#[derive(Debug)]
pub(crate) struct JsonPath {
    segments: Vec<JsonPathSegment>,
}

#[derive(Debug, Clone, PartialEq)]
enum JsonPathSegment {
    Member(String),
    Index(usize),
    Wildcard,
    /// The next segment applies at any depth.
    Descendants,
}

/// Returns the replacement of a value, or `None` to remove it.
pub(crate) type ValueEdit<'e> = dyn FnMut(&Value) -> Option<Value> + 'e;

impl JsonPath {
    /// Parses a path such as `$.users[*].token`.
    pub(crate) fn parse(text: &str) -> Result<JsonPath, String> {
        let refused = || format!("\"{text}\" is not a supported JSONPath such as $.users[*].token");
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        if !rest.is_empty() && !rest.starts_with(['.', '[']) && text.starts_with('$') {
            return Err(refused());
        }
        let mut segments = Vec::new();
        // A path without `$` begins with a member.
        if !text.starts_with('$') {
            segments.push(JsonPathSegment::Member(take_name(&mut rest).ok_or_else(refused)?));
        }
        while !rest.is_empty() {
            if let Some(after) = rest.strip_prefix("..") {
                segments.push(JsonPathSegment::Descendants);
                rest = after;
                if !rest.starts_with('[') {
                    segments.push(take_member(&mut rest).ok_or_else(refused)?);
                }
            } else if let Some(after) = rest.strip_prefix('.') {
                rest = after;
                segments.push(take_member(&mut rest).ok_or_else(refused)?);
            } else {
                let inside = rest.strip_prefix('[').ok_or_else(refused)?;
                let end = inside.find(']').ok_or_else(refused)?;
                segments.push(bracketed(&inside[..end]).ok_or_else(refused)?);
                rest = &inside[end + 1..];
            }
        }
        match segments.last() {
            None | Some(JsonPathSegment::Descendants) => Err(refused()),
            Some(_) => Ok(JsonPath { segments }),
        }
    }

    /// Edits all values at the path. Returns whether there was one.
    pub(crate) fn edit(&self, document: &mut Value, edit: &mut ValueEdit<'_>) -> bool {
        edit_at(document, &self.segments, edit)
    }
}

fn take_name(rest: &mut &str) -> Option<String> {
    let end = rest.find(['.', '[']).unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    *rest = after;
    (!name.is_empty()).then(|| name.to_owned())
}

fn take_member(rest: &mut &str) -> Option<JsonPathSegment> {
    Some(match take_name(rest)?.as_str() {
        "*" => JsonPathSegment::Wildcard,
        name => JsonPathSegment::Member(name.to_owned()),
    })
}

fn bracketed(inside: &str) -> Option<JsonPathSegment> {
    let inside = inside.trim();
    for quote in ['\'', '"'] {
        if let Some(name) = inside.strip_prefix(quote) {
            return name.strip_suffix(quote).map(|name| JsonPathSegment::Member(name.to_owned()));
        }
    }
    if inside == "*" {
        return Some(JsonPathSegment::Wildcard);
    }
    inside.parse().ok().map(JsonPathSegment::Index)
}

fn edit_at(value: &mut Value, segments: &[JsonPathSegment], edit: &mut ValueEdit<'_>) -> bool {
    let Some((segment, rest)) = segments.split_first() else { return false };
    if *segment == JsonPathSegment::Descendants {
        let mut found = edit_at(value, rest, edit);
        // Recursion is bounded: the parser of JSON refuses more than 128 levels.
        for child in children(value) {
            found |= edit_at(child, segments, edit);
        }
        return found;
    }
    let is_last = rest.is_empty();
    let mut found = false;
    match value {
        Value::Object(members) => {
            let names: Vec<String> = match segment {
                JsonPathSegment::Member(name) => {
                    members.contains_key(name).then(|| name.clone()).into_iter().collect()
                }
                JsonPathSegment::Wildcard => members.keys().cloned().collect(),
                JsonPathSegment::Index(_) | JsonPathSegment::Descendants => Vec::new(),
            };
            for name in names {
                let Some(member) = members.get_mut(&name) else { continue };
                if !is_last {
                    found |= edit_at(member, rest, edit);
                    continue;
                }
                found = true;
                match edit(member) {
                    Some(edited) => *member = edited,
                    None => drop(members.shift_remove(&name)),
                }
            }
        }
        Value::Array(items) => {
            let is_selected = |index: usize| match segment {
                JsonPathSegment::Index(selected) => *selected == index,
                JsonPathSegment::Wildcard => true,
                JsonPathSegment::Member(_) | JsonPathSegment::Descendants => false,
            };
            let mut index = 0;
            items.retain_mut(|item| {
                let at = index;
                index += 1;
                if !is_selected(at) {
                    return true;
                }
                if !is_last {
                    found |= edit_at(item, rest, edit);
                    return true;
                }
                found = true;
                match edit(item) {
                    Some(edited) => {
                        *item = edited;
                        true
                    }
                    None => false,
                }
            });
        }
        _ => {}
    }
    found
}

fn children(value: &mut Value) -> Box<dyn Iterator<Item = &mut Value> + '_> {
    match value {
        Value::Object(members) => Box::new(members.values_mut()),
        Value::Array(items) => Box::new(items.iter_mut()),
        _ => Box::new(std::iter::empty()),
    }
}
