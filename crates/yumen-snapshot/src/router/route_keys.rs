//! The keys of a route's paths in the tries.

use std::borrow::Cow;

use yumen_http::uri::decode_escapes;

use super::pattern::{KeyRemainder, path_key};
use super::trie::{KeyMatch, PARAMETER};
use crate::route::{PathForm, RouteMatching};

/// A key of one path.
pub(super) struct RouteKey<'p> {
    pub(super) bytes: Cow<'p, [u8]>,
    pub(super) reach: KeyMatch,
    pub(super) rest: KeyRemainder,
    /// Whether the path is a prefix by path element, and the key the path that equals it.
    pub(super) is_element: bool,
}

/// Calls `each` with the keys of all paths and their indexes. A pattern of paths has none.
pub(super) fn each_key(matching: &RouteMatching, parameters: bool, mut each: impl FnMut(u16, RouteKey<'_>)) {
    for (index, uri) in matching.uris.iter().enumerate() {
        let at = u16::try_from(index).unwrap_or(u16::MAX);
        match matching.path_form {
            PathForm::Patterns => {
                if let Some(key) = path_key(uri, parameters) {
                    let (bytes, reach, rest) = (key.bytes, key.reach, key.rest);
                    each(at, RouteKey { bytes, reach, rest, is_element: false });
                }
            }
            PathForm::Literal { exact, prefix } => {
                literal_keys(uri, at, exact, prefix, &mut |key| each(at, key));
            }
            PathForm::Regex => {}
        }
    }
}

fn literal_keys(uri: &str, at: u16, exact: u16, prefix: u16, each: &mut dyn FnMut(RouteKey<'_>)) {
    let is_prefix = (exact..exact.saturating_add(prefix)).contains(&at);
    let text = match (at < exact, is_prefix) {
        (true, _) => uri,
        // The element and the slash behind it are keys of their own.
        (false, true) => uri.strip_suffix("/*").unwrap_or(uri),
        (false, false) => uri.strip_suffix('*').unwrap_or(uri),
    };
    // Requests are compared in their decoded form.
    let bytes = decode_escapes(text.as_bytes());
    // PARAMETER is the marker of the trie, and no accepted request path contains it.
    if bytes.contains(&PARAMETER) {
        return;
    }
    let mut key = |bytes: Cow<'_, [u8]>, reach, is_element| {
        each(RouteKey { bytes, reach, rest: KeyRemainder::Nothing, is_element });
    };
    if !is_prefix {
        let reach = if at < exact { KeyMatch::Exact } else { KeyMatch::Prefix };
        return key(bytes, reach, false);
    }
    let below = [&*bytes, b"/"].concat();
    // The prefix `/` is no path without its slash.
    if !bytes.is_empty() {
        key(bytes, KeyMatch::Exact, true);
    }
    key(below.into(), KeyMatch::Prefix, false);
}
