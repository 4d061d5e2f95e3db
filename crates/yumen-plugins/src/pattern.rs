//! Regular expressions as users of the APISIX dialect write them, compiled once.
//!
//! The engine is linear-time, so what needs backtracking is refused when settings are built.

use regex::bytes::{Captures, Regex, RegexBuilder};
use yumen_config::schema::Invalid;

/// Compiles `pattern`; `path` names the setting it stands in.
///
/// # Errors
/// What the engine cannot run: syntax errors, look-around, backreferences.
pub(crate) fn compile(pattern: &str, path: &str) -> Result<Regex, Invalid> {
    with_options(pattern, "", path)
}

/// [`compile`] with the option letters of `ngx.re`: `i`, `m`, `s`, `x`, `u`, `a`; `j` and `o` only tune
/// another engine.
pub(crate) fn with_options(pattern: &str, options: &str, path: &str) -> Result<Regex, Invalid> {
    let anchored = options.contains('a').then(|| format!(r"\A(?:{pattern})"));
    let mut builder = RegexBuilder::new(anchored.as_deref().unwrap_or(pattern));
    builder.unicode(options.contains(['u', 'U']));
    for option in options.chars() {
        match option {
            'i' => builder.case_insensitive(true),
            'm' => builder.multi_line(true),
            's' => builder.dot_matches_new_line(true),
            'x' => builder.ignore_whitespace(true),
            'a' | 'j' | 'o' | 'u' | 'U' => &mut builder,
            other => {
                let message = format!("unknown flag \"{other}\" (flags \"{options}\")");
                return Err(Invalid::at(path, message));
            }
        };
    }
    builder.build().map_err(|error| refuse(pattern, &error, path))
}

fn refuse(pattern: &str, error: &regex::Error, path: &str) -> Invalid {
    let text = error.to_string();
    let reason = text.lines().last().unwrap_or(&text).trim_start_matches("error: ").to_owned();
    let backtracks = reason.contains("look-around") || reason.contains("backreferences");
    let hint = if backtracks { "; rewrite it without: patterns here match in linear time" } else { "" };
    Invalid::at(path, format!("invalid regular expression \"{pattern}\": {reason}{hint}"))
}

#[derive(Debug)]
enum Piece {
    Literal(Box<[u8]>),
    Group(usize),
}

/// What a match is replaced by: text with `$1`, `${1}` and `$$` in it.
#[derive(Debug)]
pub(crate) struct Replacement(Box<[Piece]>);

impl Replacement {
    /// Reads the template; groups are numbers, as in `ngx.re.sub`.
    pub(crate) fn parse(text: &str, path: &str) -> Result<Replacement, Invalid> {
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
                Invalid::at(path, message + "number of a group, or doubled")
            })?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
            }
            pieces.push(Piece::Group(group));
            rest = after;
        }
        literal.extend_from_slice(rest.as_bytes());
        if !literal.is_empty() {
            pieces.push(Piece::Literal(literal.into()));
        }
        Ok(Replacement(pieces.into()))
    }

    fn render(&self, captures: &Captures<'_>, out: &mut Vec<u8>, edit: impl Fn(&mut Vec<u8>, usize)) {
        for piece in &self.0 {
            match piece {
                Piece::Literal(text) => out.extend_from_slice(text),
                Piece::Group(group) => {
                    let found = captures.get(*group).map_or(&b""[..], |found| found.as_bytes());
                    place(found, out, &edit);
                }
            }
        }
    }
}

/// Appends a part of the text that the pattern was over.
fn place(part: &[u8], out: &mut Vec<u8>, edit: impl Fn(&mut Vec<u8>, usize)) {
    let start = out.len();
    out.extend_from_slice(part);
    edit(out, start);
}

/// A group's number at the start of `text`, and what follows it.
pub(crate) fn group(text: &str) -> Option<(usize, &str)> {
    let braced = text.strip_prefix('{');
    let digits = braced.unwrap_or(text);
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    let number = digits[..end].parse().ok()?;
    let after = &digits[end..];
    Some((number, if braced.is_some() { after.strip_prefix('}')? } else { after }))
}

/// A pattern and what takes the place of its match.
#[derive(Debug)]
pub(crate) struct Substitution {
    regex: Regex,
    by: Replacement,
}

impl Substitution {
    /// Compiles both sides.
    pub(crate) fn new(regex: Regex, by: Replacement) -> Substitution {
        Substitution { regex, by }
    }

    /// The text with its first match replaced, and the match; `None` where there is none.
    pub(crate) fn first<'t>(&self, text: &'t [u8]) -> Option<(Vec<u8>, Captures<'t>)> {
        self.first_edited(text, |_, _| {})
    }

    /// The same; `edit` sees where each part that comes from the text begins.
    pub(crate) fn first_edited<'t>(
        &self,
        text: &'t [u8],
        edit: impl Fn(&mut Vec<u8>, usize),
    ) -> Option<(Vec<u8>, Captures<'t>)> {
        let captures = self.regex.captures(text)?;
        let whole = captures.get(0).expect("group 0 is the match");
        let mut out = Vec::with_capacity(text.len() + 16);
        place(&text[..whole.start()], &mut out, &edit);
        self.by.render(&captures, &mut out, &edit);
        place(&text[whole.end()..], &mut out, &edit);
        Some((out, captures))
    }

    /// The text with every match replaced; `None` where there is none.
    pub(crate) fn all(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut copied = 0;
        let mut found = false;
        for captures in self.regex.captures_iter(text) {
            let whole = captures.get(0).expect("group 0 is the match");
            out.extend_from_slice(&text[copied..whole.start()]);
            self.by.render(&captures, &mut out, |_, _| {});
            copied = whole.end();
            found = true;
        }
        out.extend_from_slice(&text[copied..]);
        found.then_some(out)
    }
}

#[cfg(test)]
mod tests;
