//! Changes of paths by redirects and rewrites.

use serde_json::{Value, json};

use super::rule::RuleDefect;
use crate::model::HttpPathModifier;

/// A change of a path.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RulePathEdit {
    Full(String),
    /// The replacement of the prefix of the match.
    Prefix(String),
}

impl RulePathEdit {
    /// Reads a modifier. `all_prefixes`: whether all matches of the rule are prefixes.
    pub(super) fn read(
        modifier: Option<&HttpPathModifier>,
        all_prefixes: bool,
    ) -> Result<Option<RulePathEdit>, RuleDefect> {
        let Some(modifier) = modifier else { return Ok(None) };
        let edit = match (&*modifier.kind, &modifier.replace_full_path, &modifier.replace_prefix_match) {
            ("ReplaceFullPath", Some(path), _) => RulePathEdit::Full(with_slash(path)),
            ("ReplacePrefixMatch", _, Some(prefix)) if all_prefixes => {
                RulePathEdit::Prefix(with_slash(prefix))
            }
            ("ReplacePrefixMatch", _, Some(_)) => {
                let message = "ReplacePrefixMatch requires matches of type PathPrefix";
                return Err(RuleDefect::unsupported(message));
            }
            (kind, ..) => {
                let message = format!("path of type {kind:?} has no value or is not supported");
                return Err(RuleDefect::unsupported(message));
            }
        };
        Ok(Some(edit))
    }

    /// The member `path` of an action.
    pub(super) fn value(&self, prefix: Option<&str>) -> Value {
        match self {
            RulePathEdit::Full(path) => json!({ "full": path }),
            RulePathEdit::Prefix(to) => json!({ "prefix": { "from": prefix.unwrap_or("/"), "to": to } }),
        }
    }
}

/// A path begins with a slash, unless it is empty. Bytes that a path cannot have (RFC 3986 §3.3) are percent-encoded;
/// `?` is kept, since it begins the query.
fn with_slash(path: &str) -> String {
    let mut written = String::with_capacity(path.len() + 1);
    if !path.is_empty() && !path.starts_with('/') {
        written.push('/');
    }
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte) {
            written.push(char::from(byte));
        } else {
            let digit = |value: u8| char::from(b"0123456789ABCDEF"[usize::from(value & 15)]);
            written.extend(['%', digit(byte >> 4), digit(byte)]);
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::with_slash;

    #[test]
    fn paths_are_percent_encoded() {
        assert_eq!(with_slash("/é b"), "/%C3%A9%20b");
        assert_eq!(with_slash("a/%20/{x}"), "/a/%20/%7Bx%7D");
        assert_eq!(with_slash("/a?b=c&d=(e)"), "/a?b=c&d=(e)");
        assert_eq!(with_slash(""), "");
    }
}
