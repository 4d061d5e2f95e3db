//! Regular expressions in the dialect of APISIX: options, and replacements with groups. [`RegexPattern`] runs
//! them.

use regex::bytes::Regex;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::pattern::{PatternCaptures, linear, needs_backtracking};
use yumen_plugin::vars::is_data_value;
use yumen_plugin::{
    BacktrackBudget, BacktrackLimitExceeded, PatternCase, PatternOptions, PatternSyntax, PatternUnit,
    RegexPattern, RequestHead,
};

use crate::target_builder::TargetBuilder;

/// Compiles `pattern`; `path` is the setting with it.
///
/// # Errors
/// The pattern has syntax that no engine supports.
pub(crate) fn compile(pattern: &str, path: &str) -> Result<RegexPattern, InvalidSettings> {
    with_options(pattern, "", path)
}

/// [`compile`] with the option letters of `ngx.re`: `i`, `m`, `s`, `x`, `u`, `a`. `j` and `o` have no effect,
/// because they only tune the engine of NGINX.
pub(crate) fn with_options(
    pattern: &str,
    options: &str,
    path: &str,
) -> Result<RegexPattern, InvalidSettings> {
    let (text, read) = read(pattern, options, path)?;
    RegexPattern::new(&text, read).map_err(|reason| refuse(pattern, &reason, path))
}

/// [`with_options`] for text of any length, without backtracking and its limits.
pub(crate) fn linear_with_options(
    pattern: &str,
    options: &str,
    path: &str,
) -> Result<Regex, InvalidSettings> {
    let (text, read) = read(pattern, options, path)?;
    linear(&text, read).map_err(|reason| {
        let hint = "; rewrite it without: patterns over bodies match in linear time";
        let hint = if needs_backtracking(&text, read) { hint } else { "" };
        refuse(pattern, &format!("{reason}{hint}"), path)
    })
}

/// Compiles a list of alternatives. All patterns with linear run time become one.
///
/// # Errors
/// A pattern has syntax that no engine supports; the first such pattern is reported.
pub(crate) fn any_of(
    patterns: &[String],
    options: &str,
    path: &str,
) -> Result<Box<[RegexPattern]>, InvalidSettings> {
    let (mut joined, mut all) = (Vec::new(), Vec::new());
    for (at, text) in patterns.iter().enumerate() {
        let pattern = with_options(text, options, &format!("{path}.{at}"))?;
        // Patterns with backreferences stay separate, because joining them would renumber their groups.
        match pattern.is_linear() {
            true => joined.push(format!("(?:{text})")),
            false => all.push(pattern),
        }
    }
    if !joined.is_empty() || all.is_empty() {
        // First, because a linear match takes nothing from the budget.
        all.insert(0, with_options(&joined.join("|"), options, path)?);
    }
    Ok(all.into())
}

/// Whether any of the patterns matches.
pub(crate) fn any_matches(
    patterns: &[RegexPattern],
    text: &[u8],
    budget: &BacktrackBudget,
) -> Result<bool, BacktrackLimitExceeded> {
    let mut found = Ok(false);
    for pattern in patterns {
        match pattern.is_match(text, budget) {
            Ok(false) => {}
            Ok(true) => return Ok(true),
            // Another pattern may still match.
            Err(BacktrackLimitExceeded) => found = Err(BacktrackLimitExceeded),
        }
    }
    found
}

/// The text to compile and its options.
fn read(pattern: &str, options: &str, path: &str) -> Result<(String, PatternOptions), InvalidSettings> {
    let mut read = PatternOptions::default();
    for option in options.chars() {
        match option {
            'i' => read.case = PatternCase::Insensitive,
            'm' => read.is_multi_line = true,
            's' => read.dot_matches_new_line = true,
            'x' => read.syntax = PatternSyntax::Verbose,
            // `U` is `u` without a check of the text (`ngx.re`).
            'u' | 'U' => read.unit = PatternUnit::Unicode,
            'a' | 'j' | 'o' => {}
            other => {
                let message = format!("unknown flag \"{other}\" (flags \"{options}\")");
                return Err(InvalidSettings::at(path, message));
            }
        };
    }
    // The option `a` anchors the match at the beginning of the text.
    let text = if options.contains('a') { format!(r"\A(?:{pattern})") } else { pattern.to_owned() };
    Ok((text, read))
}

fn refuse(pattern: &str, reason: &str, path: &str) -> InvalidSettings {
    InvalidSettings::at(path, format!("invalid regular expression \"{pattern}\": {reason}"))
}

#[derive(Debug)]
enum ReplacementPart {
    Literal(Box<[u8]>),
    Group(usize),
}

/// A compiled replacement with `$1`, `${1}` and `$$`.
#[derive(Debug)]
pub(crate) struct MatchReplacement(Box<[ReplacementPart]>);

impl MatchReplacement {
    /// Compiles a replacement; groups are numbers, as in `ngx.re.sub`.
    pub(crate) fn parse(text: &str, path: &str) -> Result<MatchReplacement, InvalidSettings> {
        if is_data_value(text) {
            return Ok(MatchReplacement(Box::new([ReplacementPart::Literal(text.as_bytes().into())])));
        }
        let mut pieces = Vec::new();
        let mut literal = Vec::new();
        let mut rest = text;
        while let Some(dollar) = rest.find('$') {
            literal.extend_from_slice(&rest.as_bytes()[..dollar]);
            rest = &rest[dollar + 1..];
            if let Some(after) = rest.strip_prefix('$') {
                literal.push(b'$');
                rest = after;
                continue;
            }
            let (group, after) = group(rest).ok_or_else(|| {
                let message = format!("invalid replacement \"{text}\": a dollar sign is followed by the ");
                InvalidSettings::at(path, message + "number of a group, or doubled")
            })?;
            if !literal.is_empty() {
                pieces.push(ReplacementPart::Literal(std::mem::take(&mut literal).into()));
            }
            pieces.push(ReplacementPart::Group(group));
            rest = after;
        }
        literal.extend_from_slice(rest.as_bytes());
        if !literal.is_empty() {
            pieces.push(ReplacementPart::Literal(literal.into()));
        }
        Ok(MatchReplacement(pieces.into()))
    }

    fn render(&self, captures: &PatternCaptures<'_>, out: &mut Vec<u8>) {
        for piece in &self.0 {
            match piece {
                ReplacementPart::Literal(text) => out.extend_from_slice(text),
                ReplacementPart::Group(group) => {
                    out.extend_from_slice(captures.get(*group).map_or(&b""[..], |(_, found)| found));
                }
            }
        }
    }
}

/// The number of a group at the beginning of `text`, and the rest.
pub(crate) fn group(text: &str) -> Option<(usize, &str)> {
    let braced = text.strip_prefix('{');
    let digits = braced.unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits[..end].parse().ok()?;
    let after = &digits[end..];
    Some((number, if braced.is_some() { after.strip_prefix('}')? } else { after }))
}

/// A pattern with the replacement for its match.
#[derive(Debug)]
pub(crate) struct PatternSubstitution {
    pattern: RegexPattern,
    by: MatchReplacement,
}

impl PatternSubstitution {
    /// A substitution of `by` for the match of `pattern`.
    pub(crate) fn new(pattern: RegexPattern, by: MatchReplacement) -> PatternSubstitution {
        PatternSubstitution { pattern, by }
    }

    /// The text with its first match replaced, and the match; `None` without a match.
    pub(crate) fn first<'t>(
        &self,
        text: &'t [u8],
        budget: &BacktrackBudget,
    ) -> Result<Option<(Vec<u8>, PatternCaptures<'t>)>, BacktrackLimitExceeded> {
        let Some(captures) = self.pattern.captures(text, budget)? else { return Ok(None) };
        let (start, whole) = captures.get(0).expect("group 0 is the match");
        let mut out = Vec::with_capacity(text.len() + 16);
        out.extend_from_slice(&text[..start]);
        self.by.render(&captures, &mut out);
        out.extend_from_slice(&text[start + whole.len()..]);
        Ok(Some((out, captures)))
    }

    /// Builds a target from the request's path with its first match replaced; `None` without a match.
    pub(crate) fn first_in_path<'t>(
        &self,
        request: &'t RequestHead,
        budget: &BacktrackBudget,
        target: &mut TargetBuilder,
    ) -> Result<Option<PatternCaptures<'t>>, BacktrackLimitExceeded> {
        let path = request.path();
        let Some(captures) = self.pattern.captures(path, budget)? else { return Ok(None) };
        let (start, whole) = captures.get(0).expect("group 0 is the match");
        target.path_part(request, 0..start);
        for piece in &self.by.0 {
            match piece {
                ReplacementPart::Literal(text) => target.literal(text),
                ReplacementPart::Group(group) => {
                    if let Some((start, found)) = captures.get(*group) {
                        target.path_part(request, start..start + found.len());
                    }
                }
            }
        }
        target.path_part(request, start + whole.len()..path.len());
        Ok(Some(captures))
    }
}

/// A substitution without backtracking, for text of any length.
#[derive(Debug)]
pub(crate) struct LinearSubstitution {
    regex: Regex,
    by: MatchReplacement,
}

impl LinearSubstitution {
    /// A substitution of `by` for the matches of `regex`.
    pub(crate) fn new(regex: Regex, by: MatchReplacement) -> LinearSubstitution {
        LinearSubstitution { regex, by }
    }

    /// The text with at most `at_most` matches replaced; `None` without a match.
    pub(crate) fn replaced(&self, text: &[u8], at_most: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut copied = 0;
        let mut found = false;
        for captures in self.regex.captures_iter(text).take(at_most) {
            let whole = captures.get(0).expect("group 0 is the match");
            out.extend_from_slice(&text[copied..whole.start()]);
            copied = whole.end();
            self.by.render(&PatternCaptures::Linear(captures), &mut out);
            found = true;
        }
        out.extend_from_slice(&text[copied..]);
        found.then_some(out)
    }
}

#[cfg(test)]
mod tests;
