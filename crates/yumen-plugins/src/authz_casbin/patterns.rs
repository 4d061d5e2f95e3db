//! The pattern functions of Casbin: `keyMatch` to `keyMatch5`, `regexMatch`, `globMatch`, `ipMatch`.
//!
//! A pattern is compiled when the configuration is. All of them match in linear time.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use regex::{Captures, Regex, RegexBuilder};
use yumen_base::IpSet;

/// Different patterns of one policy.
const PATTERNS_MAX: usize = 4000;
/// Size of one compiled pattern in bytes.
const PROGRAM_BYTES_MAX: usize = 256 * 1024;

/// A function that compares a text with a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum PatternFunction {
    /// `*` stands for the rest.
    KeyMatch,
    /// `:name` stands for a segment, `/*` for the rest.
    KeyMatch2,
    /// `{name}` stands for a segment, `/*` for the rest.
    KeyMatch3,
    /// As `keyMatch3`; equal names stand for equal segments.
    KeyMatch4,
    /// As `keyMatch3`, without the query of the text.
    KeyMatch5,
    /// A regular expression that matches anywhere.
    RegexMatch,
    /// `*` and `?` stand for characters of a segment.
    GlobMatch,
    /// An address or a network.
    IpMatch,
}

impl PatternFunction {
    pub(crate) fn named(name: &str) -> Option<PatternFunction> {
        Some(match name {
            "keyMatch" => PatternFunction::KeyMatch,
            "keyMatch2" => PatternFunction::KeyMatch2,
            "keyMatch3" => PatternFunction::KeyMatch3,
            "keyMatch4" => PatternFunction::KeyMatch4,
            "keyMatch5" => PatternFunction::KeyMatch5,
            "regexMatch" => PatternFunction::RegexMatch,
            "globMatch" => PatternFunction::GlobMatch,
            "ipMatch" => PatternFunction::IpMatch,
            _ => return None,
        })
    }
}

/// A compiled pattern.
#[derive(Debug)]
pub(crate) enum KeyPattern {
    /// The whole text.
    Exact(String),
    /// The begin of the text.
    Prefix(String),
    Regex(Regex),
    /// The text in front of its query.
    WithoutQuery(Regex),
    /// Groups with the same name are equal.
    Named(Regex, Vec<String>),
    Network(IpSet),
}

impl KeyPattern {
    fn compile(function: PatternFunction, pattern: &str) -> Result<KeyPattern, String> {
        let regex = |text: &str| {
            let built = RegexBuilder::new(text).size_limit(PROGRAM_BYTES_MAX).build();
            built.map_err(|error| format!("invalid pattern \"{pattern}\": {error}"))
        };
        // The implementations of Casbin translate these patterns to regular expressions, and leave other characters of
        // regular expressions in force.
        let rest = pattern.replace("/*", "/.*");
        let segments = |named: &str| -> Result<Regex, String> {
            let named = Regex::new(named).map_err(|error| error.to_string())?;
            regex(&format!("^{}$", named.replace_all(&rest, "[^/]+")))
        };
        Ok(match function {
            PatternFunction::KeyMatch => match pattern.find('*') {
                None => KeyPattern::Exact(pattern.to_owned()),
                Some(at) => KeyPattern::Prefix(pattern[..at].to_owned()),
            },
            PatternFunction::KeyMatch2 if pattern == "*" => KeyPattern::Prefix(String::new()),
            PatternFunction::KeyMatch2 => KeyPattern::Regex(segments(":[^/]+")?),
            PatternFunction::KeyMatch3 => KeyPattern::Regex(segments(r"\{[^/]+?\}")?),
            PatternFunction::KeyMatch5 => KeyPattern::WithoutQuery(segments(r"\{[^/]+?\}")?),
            PatternFunction::KeyMatch4 => {
                let mut names = Vec::new();
                let named = Regex::new(r"\{[^/]+?\}").map_err(|error| error.to_string())?;
                let text = named.replace_all(&rest, |captures: &Captures<'_>| {
                    names.push(captures[0].to_owned());
                    "([^/]+)"
                });
                let compiled = regex(&format!("^{text}$"))?;
                if compiled.captures_len() != names.len() + 1 {
                    return Err(format!("the pattern \"{pattern}\" of keyMatch4 has groups of its own"));
                }
                KeyPattern::Named(compiled, names)
            }
            PatternFunction::RegexMatch => KeyPattern::Regex(regex(pattern)?),
            PatternFunction::GlobMatch => KeyPattern::Regex(regex(&glob(pattern)?)?),
            PatternFunction::IpMatch => {
                let network = IpSet::parse([pattern]);
                KeyPattern::Network(network.map_err(|_| format!("\"{pattern}\" is no address or network"))?)
            }
        })
    }

    /// Whether the text matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        match self {
            KeyPattern::Exact(exact) => text == exact,
            KeyPattern::Prefix(prefix) => text.starts_with(prefix.as_str()),
            KeyPattern::Regex(regex) => regex.is_match(text),
            KeyPattern::WithoutQuery(regex) => regex.is_match(text.split('?').next().unwrap_or_default()),
            KeyPattern::Named(regex, names) => regex.captures(text).is_some_and(|captures| {
                let value = |group: usize| captures.get(group + 1).map(|found| found.as_str());
                names.iter().enumerate().all(|(group, name)| {
                    let first = names.iter().position(|other| other == name).unwrap_or(group);
                    value(group) == value(first)
                })
            }),
            KeyPattern::Network(network) => {
                text.parse::<IpAddr>().is_ok_and(|address| network.contains(address))
            }
        }
    }
}

/// The regular expression of a shell pattern, in which `*` and `?` match no slash.
fn glob(pattern: &str) -> Result<String, String> {
    let refused =
        |part: &str| format!("`{part}` in the pattern \"{pattern}\" of globMatch is not evaluated here");
    if pattern.contains("**") {
        return Err(refused("**"));
    }
    let mut out = "^".to_owned();
    for character in pattern.chars() {
        match character {
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '[' | ']' | '{' | '}' | '\\' | '!' => return Err(refused(&character.to_string())),
            other => out.push_str(&regex::escape(other.encode_utf8(&mut [0; 4]))),
        }
    }
    out.push('$');
    Ok(out)
}

/// The compiled patterns of a policy, each once.
#[derive(Default)]
pub(crate) struct PatternCache {
    known: HashMap<(PatternFunction, String), Arc<KeyPattern>>,
}

impl PatternCache {
    pub(crate) fn get(&mut self, function: PatternFunction, text: &str) -> Result<Arc<KeyPattern>, String> {
        let key = (function, text.to_owned());
        if let Some(pattern) = self.known.get(&key) {
            return Ok(pattern.clone());
        }
        if self.known.len() >= PATTERNS_MAX {
            return Err(format!("the policy has more than {PATTERNS_MAX} different patterns"));
        }
        let pattern = Arc::new(KeyPattern::compile(function, text)?);
        self.known.insert(key, pattern.clone());
        Ok(pattern)
    }
}
