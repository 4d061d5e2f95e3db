//! Paths: which of Kong's are patterns, and what the upstream is asked for.

/// A path of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KongPath {
    /// Matches every path that begins like this.
    Prefix(String),
    /// A regular expression, anchored at the begin.
    Pattern(String),
}

impl KongPath {
    /// Understands a path. From 3.0 on a tilde marks patterns; before, odd characters did.
    pub(super) fn parse(text: &str, marks_patterns: bool) -> KongPath {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._~/%-".contains(c);
        match text.strip_prefix('~') {
            Some(pattern) if marks_patterns => KongPath::Pattern(pattern.to_owned()),
            None if !marks_patterns && !text.chars().all(is_plain) => KongPath::Pattern(text.to_owned()),
            _ => KongPath::Prefix(text.to_owned()),
        }
    }

    /// The regular expression for the paths it matches.
    pub(super) fn regex(&self) -> String {
        match self {
            KongPath::Prefix(prefix) => format!("^{}", escape(prefix)),
            KongPath::Pattern(pattern) => match pattern.strip_prefix('^').unwrap_or(pattern) {
                // An alternative outside of groups would otherwise not be anchored.
                pattern if pattern.contains('|') => format!("^(?:{pattern})"),
                pattern => format!("^{pattern}"),
            },
        }
    }

    /// What every path it matches begins with.
    pub(super) fn literal(&self) -> String {
        match self {
            KongPath::Prefix(prefix) => plain_start(prefix).to_owned(),
            KongPath::Pattern(pattern) => plain_start(&literal_start(pattern)).to_owned(),
        }
    }
}

/// Text that stands for itself in a regular expression; what need not be escaped stays readable.
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

/// What stands before a segment that our router would take for a parameter.
fn plain_start(path: &str) -> &str {
    let parameter = [path.find("/:"), path.find("/*")].into_iter().flatten().min();
    parameter.map_or(path, |at| &path[..=at])
}

/// The characters a pattern begins with that can only match themselves; `/` where there is none.
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
            // What may be absent or repeated is not certain.
            if matches!(rest.peek(), Some('?' | '*' | '{' | '+')) {
                break;
            }
            literal.push(c);
        }
    }
    if literal.starts_with('/') { literal } else { "/".to_owned() }
}

/// Whether there is a `|` outside of all groups: then no begin is common.
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

/// How a route's path becomes the upstream's.
#[derive(Debug, Clone, Copy)]
pub(super) struct PathMapping<'a> {
    /// What the service's paths begin with.
    pub(super) base: &'a str,
    /// Whether what the route matched is taken off.
    pub(super) strips: bool,
    /// Whether the rest is put behind `base` as it is, Kong's `v1`.
    pub(super) plain: bool,
}

impl PathMapping<'_> {
    /// Patterns over the path, each followed by what its match becomes, for one path of the route. Empty
    /// where the path stays as it is.
    pub(super) fn rewrites(&self, path: &KongPath) -> Vec<String> {
        let base = dollars(self.base);
        let bare = base.strip_suffix('/').unwrap_or(&base);
        let begin = path.regex();
        let pair = |regex: String, by: &str| vec![regex, by.to_owned()];
        if !self.strips {
            return match self.base {
                "/" => Vec::new(),
                _ if self.plain || self.base.ends_with('/') => pair("^/".into(), &format!("{bare}/")),
                // The root alone adds no slash.
                _ => [pair("^/$".into(), &base), pair("^/".into(), &format!("{bare}/"))].concat(),
            };
        }
        let slash = format!("{bare}/");
        if matches!(path, KongPath::Prefix(prefix) if prefix == "/") && self.base == "/" {
            return Vec::new();
        }
        if self.plain && !self.base.ends_with('/') {
            return pair(begin, &base);
        }
        let rest = pair(format!("{begin}/?"), &slash);
        if self.base == "/" || self.plain {
            return rest;
        }
        // Nothing is left of the path: the base alone, with a slash only where the request had one.
        let whole = match path {
            KongPath::Prefix(prefix) if prefix.len() > 1 && prefix.ends_with('/') => Vec::new(),
            _ => pair(format!("{begin}$"), bare),
        };
        [whole, rest].concat()
    }
}

/// Text that stands for itself in a replacement.
fn dollars(text: &str) -> String {
    text.replace('$', "$$")
}
