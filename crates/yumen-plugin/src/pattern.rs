//! Regular expressions of conditions and plugins, matched with input of clients.
//!
//! Most run on an engine whose time is linear in the text. Patterns with look-around or back-references run
//! on an engine that backtracks, within bounds that limit a match to about a millisecond (decision 43).

use std::cell::Cell;
use std::ops::Range;

use cost::ParsedPattern;
use fancy_regex::{BytesMode, RegexBuilder};
use regex::bytes;

mod cost;

/// Backtracking limits of a match, tried in turn: most matches need few steps, and the first limit under
/// which a match ends bounds its cost.
const STEPS: [u32; 4] = [4, 32, 256, 2048];

/// Longest text for the engine that backtracks.
const TEXT_BYTES_MAX: usize = 1 << 16;

/// Bytes that one match may read: each step back may read the whole text, several times if the weight of the
/// pattern says so. An automaton reads them in 1.5 ms.
const MATCH_BYTES_MAX: u32 = 1 << 21;

/// Bytes that all matches of an exchange may read.
const EXCHANGE_BYTES_MAX: u32 = MATCH_BYTES_MAX * 4;

/// Minimum charge for a text, since starting a match takes time as well.
const TEXT_BYTES_MIN: u32 = 64;

/// Bytes that backtracking may still read in one exchange, over all patterns and texts.
#[derive(Debug, Clone)]
pub struct BacktrackBudget(Cell<u32>);

impl Default for BacktrackBudget {
    fn default() -> BacktrackBudget {
        BacktrackBudget(Cell::new(EXCHANGE_BYTES_MAX))
    }
}

impl BacktrackBudget {
    /// Charges `bytes`; fails if fewer are left.
    fn take(&self, bytes: u32) -> Result<(), BacktrackLimitExceeded> {
        let left = self.0.get().checked_sub(bytes);
        // An exchange that exceeds the budget is undecided, so no later match may use the rest.
        self.0.set(left.unwrap_or(0));
        left.map(drop).ok_or(BacktrackLimitExceeded)
    }
}

/// The match was aborted at its limit. The result is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BacktrackLimitExceeded;

/// Options of a pattern.
#[derive(Debug, Clone, Copy, Default)]
pub struct PatternOptions {
    /// The syntax of the pattern.
    pub syntax: PatternSyntax,
    /// The unit that a dot or a class matches.
    pub unit: PatternUnit,
    /// The comparison of letters.
    pub case: PatternCase,
    /// Whether `^` and `$` match at ends of lines.
    pub is_multi_line: bool,
    /// Whether a dot matches ends of lines.
    pub dot_matches_new_line: bool,
}

/// The syntax of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PatternSyntax {
    /// Each character counts.
    #[default]
    Plain,
    /// White space and comments are ignored.
    Verbose,
}

/// The unit of a text that a pattern matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PatternUnit {
    /// Bytes, as PCRE without its UTF flag.
    #[default]
    Byte,
    /// Characters of Unicode.
    Unicode,
}

/// The comparison of letters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PatternCase {
    /// Upper and lower case differ.
    #[default]
    Sensitive,
    /// Upper and lower case are equal.
    Insensitive,
}

/// A pattern, compiled once.
#[derive(Debug, Clone)]
pub struct RegexPattern(PatternEngine);

#[derive(Debug, Clone)]
enum PatternEngine {
    Linear(bytes::Regex),
    Backtracking(Box<BacktrackingRegex>),
}

#[derive(Debug, Clone)]
struct BacktrackingRegex {
    /// One regex per limit of `STEPS`.
    by_steps: [fancy_regex::Regex; STEPS.len()],
    /// Number of times that one step may read the text.
    weight: u32,
    /// With Unicode as the unit, the engine may panic on bytes that are not UTF-8.
    unit: PatternUnit,
}

impl RegexPattern {
    /// Compiles the pattern for the engine that it needs.
    ///
    /// # Errors
    /// The reason why neither engine can run it, in one line.
    pub fn new(pattern: &str, options: PatternOptions) -> Result<RegexPattern, String> {
        match linear(pattern, options) {
            Ok(regex) => Ok(RegexPattern(PatternEngine::Linear(regex))),
            Err(reason) => match ParsedPattern::new(pattern, options.syntax) {
                Ok(parsed) if parsed.needs_backtracking() => {
                    backtracking(pattern, options, parsed.weight().map_err(str::to_owned)?)
                }
                Ok(_) => Err(reason),
                Err(as_pcre) => Err(format!("{reason}; as a pattern of PCRE: {as_pcre}")),
            },
        }
    }

    /// Whether every match takes time linear in the text.
    pub fn is_linear(&self) -> bool {
        matches!(self.0, PatternEngine::Linear(_))
    }

    /// Whether the pattern matches in `text`. Only backtracking uses the budget.
    pub fn is_match(&self, text: &[u8], budget: &BacktrackBudget) -> Result<bool, BacktrackLimitExceeded> {
        match &self.0 {
            PatternEngine::Linear(regex) => Ok(regex.is_match(text)),
            PatternEngine::Backtracking(engine) => engine.is_match(text, budget),
        }
    }

    /// Returns the first match in `text`.
    pub fn captures<'t>(
        &self,
        text: &'t [u8],
        budget: &BacktrackBudget,
    ) -> Result<Option<PatternCaptures<'t>>, BacktrackLimitExceeded> {
        match &self.0 {
            PatternEngine::Linear(regex) => Ok(regex.captures(text).map(PatternCaptures::Linear)),
            PatternEngine::Backtracking(engine) => {
                Ok(engine.captures(text, budget)?.map(PatternCaptures::Backtracking))
            }
        }
    }
}

impl BacktrackingRegex {
    /// Runs a match with increasing limits until it ends, or until a bound or the budget is exceeded.
    fn run<T>(
        &self,
        text: &[u8],
        budget: &BacktrackBudget,
        matches: impl Fn(&fancy_regex::Regex) -> fancy_regex::Result<T>,
    ) -> Result<T, BacktrackLimitExceeded> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(BacktrackLimitExceeded);
        }
        let bytes = u32::try_from(text.len()).map_err(|_| BacktrackLimitExceeded)?.max(TEXT_BYTES_MIN);
        for (regex, steps) in self.by_steps.iter().zip(STEPS) {
            let cost = bytes.saturating_mul(steps).saturating_mul(self.weight);
            if cost > MATCH_BYTES_MAX {
                break;
            }
            budget.take(cost)?;
            if let Ok(found) = matches(regex) {
                return Ok(found);
            }
        }
        Err(BacktrackLimitExceeded)
    }

    fn is_match(&self, text: &[u8], budget: &BacktrackBudget) -> Result<bool, BacktrackLimitExceeded> {
        if self.unit == PatternUnit::Unicode {
            let text = unicode(text)?;
            return self.run(text.as_bytes(), budget, |regex| regex.is_match(text));
        }
        self.run(text, budget, |regex| regex.is_match(text))
    }

    fn captures<'t>(
        &self,
        text: &'t [u8],
        budget: &BacktrackBudget,
    ) -> Result<Option<Groups<'t>>, BacktrackLimitExceeded> {
        let group = |range: Range<usize>| (range.start, &text[range]);
        if self.unit == PatternUnit::Unicode {
            let valid = unicode(text)?;
            let found = self.run(text, budget, |regex| regex.captures(valid))?;
            return Ok(
                found.map(|found| (0..found.len()).map(|at| Some(group(found.get(at)?.range()))).collect())
            );
        }
        let found = self.run(text, budget, |regex| regex.captures(text))?;
        Ok(found.map(|found| (0..found.len()).map(|at| Some(group(found.get(at)?.range()))).collect()))
    }
}

/// Returns the text as UTF-8. Whether other text matches is undefined.
fn unicode(text: &[u8]) -> Result<&str, BacktrackLimitExceeded> {
    std::str::from_utf8(text).map_err(|_| BacktrackLimitExceeded)
}

/// Offset and bytes of a group.
type Group<'t> = (usize, &'t [u8]);
/// Groups of a match; `None` for those that did not take part.
type Groups<'t> = Box<[Option<Group<'t>>]>;

/// A match and its groups; group 0 is the match itself.
#[derive(Debug)]
pub enum PatternCaptures<'t> {
    /// Captures of the linear engine.
    Linear(bytes::Captures<'t>),
    /// Captures of the engine that backtracks.
    Backtracking(Groups<'t>),
}

impl<'t> PatternCaptures<'t> {
    /// Number of groups of the pattern, including the match itself.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            PatternCaptures::Linear(found) => found.len(),
            PatternCaptures::Backtracking(groups) => groups.len(),
        }
    }

    /// Offset and bytes of a group; `None` if it did not take part.
    pub fn get(&self, group: usize) -> Option<Group<'t>> {
        match self {
            PatternCaptures::Linear(found) => found.get(group).map(|part| (part.start(), part.as_bytes())),
            PatternCaptures::Backtracking(groups) => *groups.get(group)?,
        }
    }
}

/// Compiles the pattern for the linear engine only, for callers that exceed the bounds of the other.
///
/// # Errors
/// The reason why that engine cannot run it, in one line.
pub fn linear(pattern: &str, options: PatternOptions) -> Result<bytes::Regex, String> {
    if may_be_possessive(pattern) && needs_backtracking(pattern, options) {
        // The linear engine would read `a++` as `(?:a+)+`, which matches more.
        return Err("a possessive repetition needs an engine that backtracks".to_owned());
    }
    let mut builder = bytes::RegexBuilder::new(pattern);
    builder
        .unicode(options.unit == PatternUnit::Unicode)
        .case_insensitive(options.case == PatternCase::Insensitive)
        .multi_line(options.is_multi_line)
        .dot_matches_new_line(options.dot_matches_new_line)
        .ignore_whitespace(options.syntax == PatternSyntax::Verbose);
    builder.build().map_err(|error| last_line(&error.to_string()))
}

/// Whether a `+` could make a repetition possessive.
fn may_be_possessive(pattern: &str) -> bool {
    pattern.as_bytes().windows(2).any(|pair| matches!(pair, [b'*' | b'+' | b'?' | b'}', b'+']))
}

/// Whether the pattern needs an engine that backtracks.
pub fn needs_backtracking(pattern: &str, options: PatternOptions) -> bool {
    ParsedPattern::new(pattern, options.syntax).is_ok_and(|parsed| parsed.needs_backtracking())
}

fn backtracking(pattern: &str, options: PatternOptions, weight: u32) -> Result<RegexPattern, String> {
    let mode = match options.unit {
        PatternUnit::Unicode => BytesMode::Unicode,
        PatternUnit::Byte => BytesMode::Ascii,
    };
    let build = |steps: u32| {
        RegexBuilder::new(pattern)
            .bytes_mode(mode)
            .case_insensitive(options.case == PatternCase::Insensitive)
            .multi_line(options.is_multi_line)
            .dot_matches_new_line(options.dot_matches_new_line)
            .ignore_whitespace(options.syntax == PatternSyntax::Verbose)
            .backtrack_limit(steps as usize)
            .build()
            .map_err(|error| last_line(&error.to_string()))
    };
    let [first, second, third, last] = STEPS.map(build);
    let by_steps = [first?, second?, third?, last?];
    Ok(RegexPattern(PatternEngine::Backtracking(Box::new(BacktrackingRegex {
        by_steps,
        weight,
        unit: options.unit,
    }))))
}

fn last_line(error: &str) -> String {
    let told = error.lines().rfind(|line| !line.trim().is_empty());
    told.unwrap_or(error).trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
