//! Regular expressions for conditions and plugins, which match text of clients.
//!
//! Almost all patterns run on an engine with linear time. Those with look-around or back-references run on a
//! backtracking engine, within bounds that limit a match to about a millisecond (decision 43).

use std::cell::Cell;
use std::ops::Range;

use cost::ParsedPattern;
use fancy_regex::{BytesMode, RegexBuilder};
use regex::bytes;

mod cost;

/// Backtracking limits, tried in order until a match completes. Most matches need few steps, and the cost of
/// a match is known only from the limit with which it completed.
const STEPS: [u32; 4] = [4, 32, 256, 2048];

/// Sizes that [`compiled_bytes`] distinguishes below its bound.
const PROGRAM_BYTES: [usize; 3] = [1 << 14, 1 << 16, 1 << 18];

/// Longest text for the backtracking engine.
const TEXT_BYTES_MAX: usize = 1 << 16;

/// Most bytes that a match may examine. Each backtracking step may examine the whole text, several times
/// according to the weight of the pattern. An automaton takes 1.5 ms for this number.
const MATCH_BYTES_MAX: u32 = 1 << 21;

/// Most bytes that all matches of an exchange may examine.
const EXCHANGE_BYTES_MAX: u32 = MATCH_BYTES_MAX * 4;

/// Smallest length that is charged for a text, because starting a match takes time too.
const TEXT_BYTES_MIN: u32 = 64;

/// The remaining bytes that backtracking may examine in one exchange, over all patterns and texts.
#[derive(Debug, Clone)]
pub struct BacktrackBudget(Cell<u32>);

impl Default for BacktrackBudget {
    fn default() -> BacktrackBudget {
        BacktrackBudget(Cell::new(EXCHANGE_BYTES_MAX))
    }
}

impl BacktrackBudget {
    /// Charges `bytes`, or fails if fewer are left.
    fn take(&self, bytes: u32) -> Result<(), BacktrackLimitExceeded> {
        let left = self.0.get().checked_sub(bytes);
        // A failed charge empties the budget: the exchange is undecided, and further matches would only take
        // time.
        self.0.set(left.unwrap_or(0));
        left.map(drop).ok_or(BacktrackLimitExceeded)
    }
}

/// The match was aborted because it would take too long; the result is unknown.
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
    /// `.` matches line ends.
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

/// A compiled pattern.
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
    /// The reason why neither engine supports the pattern, in one line.
    pub fn new(pattern: &str, options: PatternOptions) -> Result<RegexPattern, String> {
        // Nearly all patterns are linear; only a rejected one is parsed again (decision 43).
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

    /// Whether every match takes linear time.
    pub fn is_linear(&self) -> bool {
        matches!(self.0, PatternEngine::Linear(_))
    }

    /// Whether the pattern matches somewhere in `text`. Only backtracking is charged to the budget.
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
    /// Tries increasing limits until a match completes or the bounds are reached.
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
            // Charged in advance: an attempt that reaches its limit has cost as much.
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

/// The text as UTF-8. For other bytes the result of a match is unknown.
fn unicode(text: &[u8]) -> Result<&str, BacktrackLimitExceeded> {
    std::str::from_utf8(text).map_err(|_| BacktrackLimitExceeded)
}

/// Start and text of a group.
type Group<'t> = (usize, &'t [u8]);
/// The groups of a match; `None` for one that did not participate.
type Groups<'t> = Box<[Option<Group<'t>>]>;

/// A match and its groups; group 0 is the whole match.
#[derive(Debug)]
pub enum PatternCaptures<'t> {
    /// From the linear engine.
    Linear(bytes::Captures<'t>),
    /// From the backtracking engine.
    Backtracking(Groups<'t>),
}

impl<'t> PatternCaptures<'t> {
    /// Number of groups, including group 0.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            PatternCaptures::Linear(found) => found.len(),
            PatternCaptures::Backtracking(groups) => groups.len(),
        }
    }

    /// Start and text of a group; `None` if it did not participate in the match.
    pub fn get(&self, group: usize) -> Option<Group<'t>> {
        match self {
            PatternCaptures::Linear(found) => found.get(group).map(|part| (part.start(), part.as_bytes())),
            PatternCaptures::Backtracking(groups) => *groups.get(group)?,
        }
    }
}

/// Compiles a pattern for the linear engine, for text beyond the bounds of backtracking.
///
/// # Errors
/// The reason why the linear engine does not support the pattern, in one line.
pub fn linear(pattern: &str, options: PatternOptions) -> Result<bytes::Regex, String> {
    // Parsing the tree is worth its cost only for patterns with the characters of a possessive repetition.
    if may_be_possessive(pattern) && needs_backtracking(pattern, options) {
        // The linear engine would parse `a++` as `(?:a+)+`, which matches more.
        return Err("a possessive repetition needs an engine that backtracks".to_owned());
    }
    linear_builder(pattern, options).build().map_err(|error| last_line(&error.to_string()))
}

fn linear_builder(pattern: &str, options: PatternOptions) -> bytes::RegexBuilder {
    let mut builder = bytes::RegexBuilder::new(pattern);
    builder
        .unicode(options.unit == PatternUnit::Unicode)
        .case_insensitive(options.case == PatternCase::Insensitive)
        .multi_line(options.is_multi_line)
        .dot_matches_new_line(options.dot_matches_new_line)
        .ignore_whitespace(options.syntax == PatternSyntax::Verbose);
    builder
}

/// An upper bound of the memory that a compiled pattern takes, in bytes: `bytes_max`, or one of some smaller sizes.
///
/// # Errors
/// The pattern has syntax that no engine supports, or takes more than `bytes_max`.
pub fn compiled_bytes(pattern: &str, options: PatternOptions, bytes_max: usize) -> Result<usize, String> {
    let backtracks = may_be_possessive(pattern) || linear_builder(pattern, options).build().is_err();
    let backtracks = backtracks && needs_backtracking(pattern, options);
    // The backtracking engine compiles once for each of its limits.
    let programs = if backtracks { STEPS.len() } else { 1 };
    let fits = |bytes: usize| match backtracks {
        true => backtracking_builder(pattern, options)
            .delegate_size_limit(bytes / programs)
            .build()
            .map(drop)
            .map_err(|error| last_line(&error.to_string())),
        false => linear_builder(pattern, options)
            .size_limit(bytes)
            .build()
            .map(drop)
            .map_err(|error| last_line(&error.to_string())),
    };
    fits(bytes_max)?;
    Ok(PROGRAM_BYTES
        .into_iter()
        .find(|bytes| *bytes < bytes_max && fits(*bytes).is_ok())
        .unwrap_or(bytes_max))
}

/// Whether the pattern may contain a possessive repetition.
fn may_be_possessive(pattern: &str) -> bool {
    pattern.as_bytes().windows(2).any(|pair| matches!(pair, [b'*' | b'+' | b'?' | b'}', b'+']))
}

/// Whether the pattern requires backtracking.
pub fn needs_backtracking(pattern: &str, options: PatternOptions) -> bool {
    ParsedPattern::new(pattern, options.syntax).is_ok_and(|parsed| parsed.needs_backtracking())
}

fn backtracking_builder(pattern: &str, options: PatternOptions) -> RegexBuilder {
    let mode = match options.unit {
        PatternUnit::Unicode => BytesMode::Unicode,
        PatternUnit::Byte => BytesMode::Ascii,
    };
    let mut builder = RegexBuilder::new(pattern);
    builder
        .bytes_mode(mode)
        .case_insensitive(options.case == PatternCase::Insensitive)
        .multi_line(options.is_multi_line)
        .dot_matches_new_line(options.dot_matches_new_line)
        .ignore_whitespace(options.syntax == PatternSyntax::Verbose);
    builder
}

fn backtracking(pattern: &str, options: PatternOptions, weight: u32) -> Result<RegexPattern, String> {
    let build = |steps: u32| {
        backtracking_builder(pattern, options)
            .backtrack_limit(steps as usize)
            .build()
            .map_err(|error| last_line(&error.to_string()))
    };
    // The engine fixes the limit when it compiles, so there is a regex for each limit.
    let [first, second, third, last] = STEPS.map(build);
    let by_steps = [first?, second?, third?, last?];
    Ok(RegexPattern(PatternEngine::Backtracking(Box::new(BacktrackingRegex {
        by_steps,
        weight,
        unit: options.unit,
    }))))
}

fn last_line(error: &str) -> String {
    // The lines before the last one repeat the pattern and mark a position in it.
    let last_line = error.lines().rfind(|line| !line.trim().is_empty());
    last_line.unwrap_or(error).trim_start_matches("error: ").to_owned()
}

#[cfg(test)]
mod tests;
