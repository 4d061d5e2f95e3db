//! Preconditions of writes (RFC 9110 §13.1). A malformed condition is an error: ignoring it could overwrite the changes
//! of another client.

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use yumen_store::{ResourceKey, Revision, StoreEntry};

use super::answer;
use crate::refusal::ApiRefusal;

/// `If-Match` and `If-None-Match`; all given conditions must be true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WritePrecondition {
    is_one_of: Option<EntityTags>,
    is_none_of: Option<EntityTags>,
}

/// The entity tags of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum EntityTags {
    /// `*`: any existing object.
    Any,
    These(Vec<String>),
}

impl WritePrecondition {
    pub(super) fn of(headers: &HeaderMap) -> Result<WritePrecondition, ApiRefusal> {
        // `If-Match` is evaluated first (RFC 9110 §13.2.2).
        let is_one_of = EntityTags::of(headers, &header::IF_MATCH)?;
        Ok(WritePrecondition { is_one_of, is_none_of: EntityTags::of(headers, &header::IF_NONE_MATCH)? })
    }

    /// Refuses a write with a condition that does not hold.
    pub(super) fn check(&self, key: &ResourceKey, before: Option<&StoreEntry>) -> Result<(), ApiRefusal> {
        let failed = |message: String| Err(ApiRefusal::new(StatusCode::PRECONDITION_FAILED, message));
        let Some(entry) = before else {
            // An absent object has no tag, so only `If-Match` fails.
            return if self.is_one_of.is_none() { Ok(()) } else { failed(format!("{key} does not exist")) };
        };
        let tag = answer::tag(entry.modified);
        // A weak tag never matches `If-Match` (§13.1.1).
        if let Some(EntityTags::These(tags)) = &self.is_one_of
            && !tags.contains(&tag)
        {
            let tags = tags.join(", ");
            return failed(format!("{key} is at modifiedIndex {tag}, not {tags}: read it again"));
        }
        match &self.is_none_of {
            // The way to create an object without overwriting one (RFC 9110 §13.1.2).
            Some(EntityTags::Any) => failed(format!("{key} already exists")),
            Some(tags) if tags.include(entry.modified) => {
                failed(format!("{key} is at modifiedIndex {tag}, which If-None-Match excludes"))
            }
            _ => Ok(()),
        }
    }
}

impl EntityTags {
    /// The tags of all lines of a field, which are one list (§5.3); `None` if the field is absent.
    fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<EntityTags>, ApiRefusal> {
        let Some(text) = joined(headers, name) else { return Ok(None) };
        let unreadable = || {
            let form = r#"it is * or a list of entity tags such as "15", in quotes"#;
            ApiRefusal::invalid(format!("{name}: {text} cannot be read; {form}"))
        };
        let tags =
            if text.trim() == "*" { Some(EntityTags::Any) } else { split(&text).map(EntityTags::These) };
        tags.map(Some).ok_or_else(unreadable)
    }

    /// Whether the list contains the tag of `revision`, by weak comparison (§8.8.3.2).
    fn include(&self, revision: Revision) -> bool {
        let tag = answer::tag(revision);
        match self {
            EntityTags::Any => true,
            EntityTags::These(tags) => tags.iter().any(|one| one.strip_prefix("W/").unwrap_or(one) == tag),
        }
    }
}

/// Whether the client of a read has a revision already. A malformed condition is ignored: the client then receives the
/// content.
pub(super) fn is_known(headers: &HeaderMap) -> impl Fn(Revision) -> bool + Send + 'static {
    let known = EntityTags::of(headers, &header::IF_NONE_MATCH).ok().flatten();
    move |revision| known.as_ref().is_some_and(|tags| tags.include(revision))
}

/// The lines of a field as one list. Bytes beyond ASCII are replaced; tags of the gateway contain none.
fn joined(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let lines = headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
    // Several lines are one list (RFC 9110 §5.3).
    lines.map(std::borrow::Cow::into_owned).reduce(|all, line| all + ", " + &line)
}

/// The entity tags of a list, with `W/` and quotes; `None` if the list is malformed or empty.
fn split(text: &str) -> Option<Vec<String>> {
    let is_between = |character: char| matches!(character, ' ' | '\t' | ',');
    let mut tags = Vec::new();
    let mut rest = text.trim_matches(is_between);
    while !rest.is_empty() {
        let quoted = rest.strip_prefix("W/").unwrap_or(rest).strip_prefix('"')?;
        let after = &quoted[quoted.find('"')? + 1..];
        // Two tags without a comma: where one ends is not certain.
        if !after.is_empty() && !after.trim_start_matches([' ', '\t']).starts_with(',') {
            return None;
        }
        tags.push(rest[..rest.len() - after.len()].to_owned());
        rest = after.trim_start_matches(is_between);
    }
    (!tags.is_empty()).then_some(tags)
}
