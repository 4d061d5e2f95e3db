//! Paths of Ingresses and the conditions of routes for them.

use serde_json::{Value, json};
use yumen_plugin::{PatternCase, PatternOptions, RegexPattern};

/// The way in which a path matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum IngressPathForm {
    Exact,
    /// By path element.
    Prefix,
    /// By characters: NGINX's prefix.
    Characters,
}

impl IngressPathForm {
    /// Name of the member of `match.paths` for whole paths.
    pub(super) const EXACT: &'static str = "exact";

    /// The form of a `pathType`; an absent or unknown one is `ImplementationSpecific`.
    pub(super) fn of(path_type: Option<&str>) -> IngressPathForm {
        match path_type {
            Some("Exact") => IngressPathForm::Exact,
            Some("Prefix") => IngressPathForm::Prefix,
            _ => IngressPathForm::Characters,
        }
    }

    /// Name of the member of `match.paths`.
    fn member(self) -> &'static str {
        match self {
            IngressPathForm::Exact => IngressPathForm::EXACT,
            IngressPathForm::Prefix => "prefix",
            IngressPathForm::Characters => "starts_with",
        }
    }
}

/// Why a path cannot be served.
pub(super) fn flaw_of_path(path: &str, form: IngressPathForm, is_strict: bool) -> Option<String> {
    if !path.starts_with('/') {
        return Some(format!("path {path:?} does not begin with a slash"));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-/".contains(&byte);
    if is_strict && form != IngressPathForm::Characters && !path.bytes().all(is_plain) {
        return Some(format!(
            "path {path:?} of type {form:?} has characters that are no letters, digits, ., _, - or /; patterns need \
             pathType ImplementationSpecific"
        ));
    }
    path.chars().any(char::is_control).then(|| format!("path {path:?} has control characters"))
}

/// The beginning of the paths that a path with a flaw may have meant.
pub(super) fn closed_path(path: &str) -> String {
    let end = path.find(char::is_control).unwrap_or(path.len());
    format!("/{}", path[..end].trim_start_matches('/'))
}

/// Why no request has a literal path; `None` for one that requests can have.
pub(super) fn flaw_of_literal(path: &str) -> Option<String> {
    let is_dotted = path.split('/').any(|element| matches!(element, "." | ".."));
    let is_odd = is_dotted || path.contains("//") || path.contains(['?', '#']);
    let has_slash = path.to_ascii_lowercase().contains("%2f");
    (is_odd || has_slash).then(|| format!("path {path:?} matches no request in normal form"))
}

/// The member `match` of a route in the literal mode of a host.
pub(super) fn literal_match(path: &str, form: IngressPathForm) -> Value {
    json!({ "paths": { (form.member()): [path] } })
}

/// The member `match` of a route in the pattern mode of a host: every path is a pattern, whatever its type is.
pub(super) fn pattern_match(path: &str) -> Value {
    json!({ "path_regex": { "pattern": path, "ignore_case": true } })
}

/// A pattern that matches from the first byte on where `pattern` matches anywhere.
pub(super) fn searching(pattern: &str) -> String {
    // The anchor of several alternatives is that of the first one only.
    match pattern.starts_with('^') && !pattern.contains('|') {
        true => pattern.to_owned(),
        // A path may have a line end.
        false => format!("(?s:.*?)(?:{pattern})"),
    }
}

/// Why a path is no pattern; `None` for a valid one.
pub(super) fn flaw_of_pattern(path: &str) -> Option<String> {
    let options = PatternOptions { case: PatternCase::Insensitive, ..PatternOptions::default() };
    let reason = RegexPattern::new(&format!("^(?:{path})"), options).err()?;
    Some(format!("path {path:?} is no pattern: {reason}"))
}

/// The member `match` in place of a pattern that is not valid: every request that a repair of the pattern may match.
pub(super) fn match_of_broken(path: &str) -> Value {
    pattern_match(&regex::escape(literal_begin(path)))
}

/// The characters before the first operator; `/` if the whole pattern has alternatives.
fn literal_begin(path: &str) -> &str {
    let mut depth = 0_i32;
    let has_alternatives = path.bytes().any(|byte| {
        depth += i32::from(byte == b'(') - i32::from(byte == b')');
        byte == b'|' && depth <= 0
    });
    let end = path.find(|one: char| r"\.+*?()[]{}^$|".contains(one)).unwrap_or(path.len());
    let repeats = path[end..].starts_with(['*', '?', '{']);
    let kept = if repeats { path[..end].char_indices().last().map_or(0, |(at, _)| at) } else { end };
    if has_alternatives || kept == 0 { "/" } else { &path[..kept] }
}

/// Whether a pattern matches the path `/`, for the patterns that people write for it.
pub(super) fn serves_root(path: &str, is_pattern: bool) -> bool {
    path == "/" || is_pattern && ["/(", "/.", "/?", "/$"].iter().any(|start| path.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_a_flaw_closes_the_paths_that_it_may_have_meant() {
        let check = |path: &str, expected: &str| assert_eq!(closed_path(path), expected, "{path}");
        check("admin/x", "/admin/x");
        check("/admin\nx", "/admin");
        check("\n/x", "/");
    }

    #[test]
    fn a_broken_pattern_closes_the_paths_that_it_may_have_meant() {
        let check = |path: &str, expected: &str| assert_eq!(literal_begin(path), expected, "{path}");
        check("/api/(v1", "/api/");
        check("/api/(v1|v2", "/api/");
        check("/api|/x(", "/");
        check("/api)|/x", "/");
        check("/files*(", "/file");
        check("/\u{e9}?(", "/");
        check("/a[", "/a");
        assert!(flaw_of_pattern("/a(?!b)").is_none());
        assert!(flaw_of_pattern("/a(b").is_some());
    }
}
