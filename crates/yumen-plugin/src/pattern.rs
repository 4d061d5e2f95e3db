//! Regular expressions, as conditions and plugins match them with what clients send.
//!
//! Almost all run on an engine whose time is linear in the text. Those that need look-around or back-references run on
//! one that backtracks, within bounds that keep a match to about a millisecond (decision 43). Knows nothing of who asks.

use std::ops::Range;

use fancy_regex::{BytesMode, RegexBuilder};
use regex::bytes;

/// How far a backtracking engine goes: for texts of so many bytes, so many steps back. A step may look at the rest of
/// the text, so that the product is what bounds the time: two million bytes, looked at in 1.5 ms.
const BOUNDS: [(usize, usize); 3] = [(1 << 10, 1 << 11), (1 << 13, 1 << 8), (1 << 16, 1 << 5)];

/// The match was given up: it would have taken too long. Nobody knows whether the text matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GaveUp;

/// How a pattern is meant.
#[derive(Debug, Clone, Copy, Default)]
pub struct PatternOptions {
    /// Whether capitals and small letters are alike.
    pub ignores_case: bool,
    /// Whether `^` and `$` match at ends of lines.
    pub is_multi_line: bool,
    /// Whether a dot matches ends of lines.
    pub dot_matches_new_line: bool,
    /// Whether white space in it means nothing.
    pub is_verbose: bool,
    /// Whether characters are those of Unicode, not bytes.
    pub is_unicode: bool,
}

/// A pattern, compiled once.
#[derive(Debug, Clone)]
pub struct Pattern(Engine);

#[derive(Debug, Clone)]
enum Engine {
    Linear(bytes::Regex),
    Backtracking(Box<Backtracking>),
}

#[derive(Debug, Clone)]
struct Backtracking {
    /// One for each of the bounds.
    by_length: [fancy_regex::Regex; BOUNDS.len()],
    /// Whether it matches texts of Unicode only. Over bytes that are none this engine may panic in that mode.
    is_unicode: bool,
}

impl Pattern {
    /// Compiles it for the engine it needs.
    ///
    /// # Errors
    /// Why neither engine can run it, in one line.
    pub fn new(pattern: &str, options: PatternOptions) -> Result<Pattern, String> {
        match linear(pattern, options) {
            Ok(regex) => Ok(Pattern(Engine::Linear(regex))),
            Err(reason) if needs_backtracking(&reason) => backtracking(pattern, options),
            Err(reason) => Err(reason),
        }
    }

    /// Whether any of its matches takes time linear in the text.
    pub fn is_linear(&self) -> bool {
        matches!(self.0, Engine::Linear(_))
    }

    /// Whether it matches somewhere in `text`.
    pub fn is_match(&self, text: &[u8]) -> Result<bool, GaveUp> {
        match &self.0 {
            Engine::Linear(regex) => Ok(regex.is_match(text)),
            Engine::Backtracking(engine) => engine.is_match(text),
        }
    }

    /// The first match in `text`.
    pub fn captures<'t>(&self, text: &'t [u8]) -> Result<Option<Captures<'t>>, GaveUp> {
        match &self.0 {
            Engine::Linear(regex) => Ok(regex.captures(text).map(Captures::Linear)),
            Engine::Backtracking(engine) => Ok(engine.captures(text)?.map(Captures::Backtracking)),
        }
    }
}

impl Backtracking {
    /// The engine whose bounds a text of this length has.
    fn bounded(&self, text: &[u8]) -> Result<&fancy_regex::Regex, GaveUp> {
        let at = BOUNDS.iter().position(|(bytes_max, _)| text.len() <= *bytes_max).ok_or(GaveUp)?;
        Ok(&self.by_length[at])
    }

    fn is_match(&self, text: &[u8]) -> Result<bool, GaveUp> {
        let regex = self.bounded(text)?;
        let found = if self.is_unicode { regex.is_match(unicode(text)?) } else { regex.is_match(text) };
        found.map_err(|_| GaveUp)
    }

    fn captures<'t>(&self, text: &'t [u8]) -> Result<Option<Groups<'t>>, GaveUp> {
        let regex = self.bounded(text)?;
        let group = |range: Range<usize>| (range.start, &text[range]);
        if self.is_unicode {
            let found = regex.captures(unicode(text)?).map_err(|_| GaveUp)?;
            return Ok(
                found.map(|found| (0..found.len()).map(|at| Some(group(found.get(at)?.range()))).collect())
            );
        }
        let found = regex.captures(text).map_err(|_| GaveUp)?;
        Ok(found.map(|found| (0..found.len()).map(|at| Some(group(found.get(at)?.range()))).collect()))
    }
}

/// A text of Unicode: whether another matches nobody can say.
fn unicode(text: &[u8]) -> Result<&str, GaveUp> {
    std::str::from_utf8(text).map_err(|_| GaveUp)
}

/// Where a group begins and what it holds.
type Group<'t> = (usize, &'t [u8]);
/// Those of a match, where they took part.
type Groups<'t> = Box<[Option<Group<'t>>]>;

/// A match and its groups; group 0 is the match itself.
#[derive(Debug)]
pub enum Captures<'t> {
    /// As the linear engine tells it.
    Linear(bytes::Captures<'t>),
    /// Each group that took part.
    Backtracking(Groups<'t>),
}

impl<'t> Captures<'t> {
    /// How many groups the pattern has, with the match itself.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            Captures::Linear(found) => found.len(),
            Captures::Backtracking(groups) => groups.len(),
        }
    }

    /// Where a group begins and what it holds, where it took part in the match.
    pub fn get(&self, group: usize) -> Option<Group<'t>> {
        match self {
            Captures::Linear(found) => found.get(group).map(|part| (part.start(), part.as_bytes())),
            Captures::Backtracking(groups) => *groups.get(group)?,
        }
    }
}

/// Compiles for the linear engine, for those who match with more than the bounds of the other allow.
///
/// # Errors
/// Why it cannot run there, in one line.
pub fn linear(pattern: &str, options: PatternOptions) -> Result<bytes::Regex, String> {
    let mut builder = bytes::RegexBuilder::new(pattern);
    builder
        .unicode(options.is_unicode)
        .case_insensitive(options.ignores_case)
        .multi_line(options.is_multi_line)
        .dot_matches_new_line(options.dot_matches_new_line)
        .ignore_whitespace(options.is_verbose);
    builder.build().map_err(|error| last_line(&error.to_string()))
}

/// Whether the linear engine refused for what no such engine can do, by the words of its parser.
pub fn needs_backtracking(reason: &str) -> bool {
    reason.contains("look-around") || reason.contains("backreferences")
}

fn backtracking(pattern: &str, options: PatternOptions) -> Result<Pattern, String> {
    let mode = if options.is_unicode { BytesMode::Unicode } else { BytesMode::Ascii };
    let build = |(_, steps)| {
        RegexBuilder::new(pattern)
            .bytes_mode(mode)
            .case_insensitive(options.ignores_case)
            .multi_line(options.is_multi_line)
            .dot_matches_new_line(options.dot_matches_new_line)
            .ignore_whitespace(options.is_verbose)
            .backtrack_limit(steps)
            .build()
            .map_err(|error| last_line(&error.to_string()))
    };
    let [short, middle, long] = BOUNDS.map(build);
    let engine = Backtracking { by_length: [short?, middle?, long?], is_unicode: options.is_unicode };
    Ok(Pattern(Engine::Backtracking(Box::new(engine))))
}

fn last_line(error: &str) -> String {
    error.lines().last().unwrap_or(error).trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
