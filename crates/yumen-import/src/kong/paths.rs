//! Paths: patterns and prefixes, and their mapping to the upstream's paths.

/// A path of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KongPath {
    /// Matches every path with this prefix.
    Prefix(String),
    /// A regular expression, anchored at the start.
    Pattern(String),
}

impl KongPath {
    /// Parses a path. A tilde marks a pattern since format 3.0; in older formats, special characters do. Kong normalizes
    /// the paths of older formats when it loads them.
    pub(super) fn parse(text: &str, marks_patterns: bool) -> KongPath {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._~/%-".contains(c);
        match text.strip_prefix('~') {
            // Since 3.0, only reserved characters are encoded in the paths that patterns are compared with.
            Some(pattern) if marks_patterns => {
                KongPath::Pattern(decode(pattern, |byte| RESERVED.contains(&byte), &escape))
            }
            _ if !marks_patterns && !text.chars().all(is_plain) => {
                KongPath::Pattern(decode(text, |_| true, &escape))
            }
            _ => {
                let decoded = decode(text, |_| true, &str::to_owned);
                KongPath::Prefix(if marks_patterns { decoded } else { normalized(&decoded) })
            }
        }
    }

    /// Whether text with this prefix looks like a pattern that lacks its tilde.
    pub(super) fn resembles_pattern(&self) -> bool {
        matches!(self, KongPath::Prefix(prefix) if prefix.contains(PATTERN_CHARACTERS))
    }

    /// The regular expression over the beginning of a path, for rewriting.
    pub(super) fn regex(&self) -> String {
        match self {
            KongPath::Prefix(prefix) => format!("^{}", escape(&prefix.replace(SLASH, "/"))),
            KongPath::Pattern(pattern) => match pattern.strip_prefix('^').unwrap_or(pattern) {
                // Without the group, only the first alternative would be anchored.
                pattern if pattern.contains('|') => format!("^(?:{})", pattern.replace(SLASH, "/")),
                pattern => format!("^{}", pattern.replace(SLASH, "/")),
            },
        }
    }

    /// The regular expression that matches the same paths as in Kong, which anchors the first alternative alone.
    pub(super) fn condition(&self) -> String {
        match self {
            KongPath::Pattern(pattern) if has_alternatives(pattern) => {
                format!("^{}", pattern.strip_prefix('^').unwrap_or(pattern).replace(SLASH, "/"))
            }
            other => other.regex(),
        }
    }

    /// The literal prefix of all matching paths.
    pub(super) fn literal(&self) -> String {
        match self {
            KongPath::Prefix(prefix) => plain_start(prefix).to_owned(),
            KongPath::Pattern(pattern) => plain_start(&literal_start(pattern)).to_owned(),
        }
    }
}

/// An encoded slash, which the router does not decode. The variable `uri` holds a slash in its place.
const SLASH: &str = "%2F";

/// Characters that Kong leaves encoded in paths (RFC 3986 §2.2).
const RESERVED: &[u8] = b"!*'();:@&=+$,/?%#[]";

/// Decodes percent-encoded bytes, except slashes, as the router decodes the paths of requests.
fn decode(text: &str, decodes: impl Fn(u8) -> bool, write: &dyn Fn(&str) -> String) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, encoded)) =
        rest.split_once('%').map(|(before, _)| (before, &rest[before.len()..]))
    {
        out.push_str(before);
        // A run of triplets may be one character of UTF-8.
        let mut bytes = Vec::new();
        let mut end = 0;
        while let Some(byte) = triplet(&encoded[end..]).filter(|byte| *byte != b'/' && decodes(*byte)) {
            bytes.push(byte);
            end += 3;
        }
        match std::str::from_utf8(&bytes) {
            Ok(decoded) if end > 0 => out.push_str(&write(decoded)),
            _ if triplet(encoded) == Some(b'/') => {
                out.push_str(SLASH);
                end = 3;
            }
            // Bytes that are no text, or a percent sign alone.
            _ => {
                end = end.max(1);
                out.push_str(&encoded[..end]);
            }
        }
        rest = &encoded[end..];
    }
    out + rest
}

/// The byte of a percent-encoded triplet at the beginning.
fn triplet(text: &str) -> Option<u8> {
    let digits = text.strip_prefix('%')?.get(..2)?;
    // `from_str_radix` accepts a sign.
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

/// A path without empty segments and dot segments (RFC 3986 §5.2.4).
fn normalized(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => drop(segments.pop()),
            other => segments.push(other),
        }
    }
    let ends_in_slash = ["/", "/.", "/.."].iter().any(|end| path.ends_with(end)) && !segments.is_empty();
    format!("/{}{}", segments.join("/"), if ends_in_slash { "/" } else { "" })
}

/// Characters with a meaning in patterns that are rare in paths.
const PATTERN_CHARACTERS: &[char] = &['\\', '^', '$', '*', '+', '?', '(', ')', '[', ']', '{', '}', '|'];

/// Escapes text for a regular expression. Only special characters are escaped, to keep the text readable.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// The part before the first parameter or `*` of the gateway's router. Both are ordinary text in Kong.
fn plain_start(path: &str) -> &str {
    let parameter = path.find("/:").map(|slash| slash + 1);
    [parameter, path.find('*')].into_iter().flatten().min().map_or(path, |at| &path[..at])
}

/// The literal prefix of a pattern; `/` if it has none.
fn literal_start(pattern: &str) -> String {
    let mut literal = String::new();
    if !has_alternatives(pattern) {
        let mut rest = pattern.strip_prefix('^').unwrap_or(pattern).chars().peekable();
        while let Some(c) = rest.next() {
            let c = match c {
                '\\' => match rest.next() {
                    Some(escaped) if !escaped.is_ascii_alphanumeric() => escaped,
                    _ => break,
                },
                '.' | '+' | '*' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '^' | '$' => break,
                plain => plain,
            };
            // A quantifier makes the character optional or repeated.
            if matches!(rest.peek(), Some('?' | '*' | '{' | '+')) {
                break;
            }
            literal.push(c);
        }
    }
    if literal.starts_with('/') { literal } else { "/".to_owned() }
}

/// Whether a pattern has a `|` outside of groups, and so no common prefix.
fn has_alternatives(pattern: &str) -> bool {
    let mut depth = 0_i32;
    let mut in_class = false;
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            '(' if !in_class => depth += 1,
            ')' if !in_class => depth -= 1,
            '|' if !in_class && depth == 0 => return true,
            _ => {}
        }
    }
    false
}

/// Kong's `path_handling`: how the path of the service and the rest of the request path are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathHandling {
    /// With exactly one slash between them.
    V0,
    /// By concatenation.
    V1,
}

/// Mapping of a route's path to the upstream's.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathMapping<'a> {
    /// The path of the service.
    pub(super) base: &'a str,
    /// Whether the matched prefix is stripped.
    pub(super) strips: bool,
    pub(super) handling: PathHandling,
}

impl PathMapping<'_> {
    /// Patterns over the path, each followed by its replacement, for one path of the route. Empty if the path stays
    /// unchanged.
    pub(super) fn rewrites(&self, path: &KongPath) -> Vec<String> {
        let base = escape_replacement(self.base);
        let bare = base.strip_suffix('/').unwrap_or(&base);
        let begin = path.regex();
        let pair = |regex: String, by: &str| vec![regex, by.to_owned()];
        let concatenates = self.handling == PathHandling::V1;
        if !self.strips {
            return match self.base {
                "/" => Vec::new(),
                _ if concatenates || self.base.ends_with('/') => pair("^/".into(), &format!("{bare}/")),
                // The root alone adds no slash to the base.
                _ => [pair("^/$".into(), &base), pair("^/".into(), &format!("{bare}/"))].concat(),
            };
        }
        let slash = format!("{bare}/");
        if matches!(path, KongPath::Prefix(prefix) if prefix == "/") && self.base == "/" {
            return Vec::new();
        }
        if concatenates && !self.base.ends_with('/') {
            return pair(begin, &base);
        }
        let rest = pair(format!("{begin}/?"), &slash);
        if self.base == "/" || concatenates {
            return rest;
        }
        // If the whole path is stripped, the base remains, with a trailing slash only if the request has one.
        let whole = match path {
            KongPath::Prefix(prefix) if prefix.len() > 1 && prefix.ends_with('/') => Vec::new(),
            // A request for the root ends in the slash that the base ends in.
            KongPath::Prefix(prefix) if prefix == "/" && self.base.ends_with('/') => Vec::new(),
            _ => pair(format!("{begin}$"), bare),
        };
        [whole, rest].concat()
    }
}

/// Escapes text for a replacement.
fn escape_replacement(text: &str) -> String {
    text.replace('$', "$$")
}
