//! Cost of a pattern on the engine that backtracks. That engine bounds only the number of its steps back:
//! this module bounds the work between two steps and rejects patterns without such a bound.

use fancy_regex::{Assertion, Expr, LookAround};

use super::PatternSyntax;

/// Factor for look-around and atomic groups: they run instruction by instruction, which is slower than an
/// automaton by this factor.
const STEPPED: u32 = 16;

/// A counted repetition of at most this number of turns may run instruction by instruction without a weight.
const TURNS_FEW: usize = 64;

/// A pattern of at most this number of characters, with its counted repetitions expanded, reads a text once.
/// An automaton of a longer pattern may process as many positions at each byte.
const CHARACTERS_FEW: usize = 16;

/// A pattern of at most this number of groups restores group positions in negligible time.
const GROUPS_FEW: usize = 32;

/// A pattern as parsed by the engine that backtracks.
#[derive(Debug)]
pub(super) struct ParsedPattern(Expr);

impl ParsedPattern {
    /// Parses the pattern.
    ///
    /// # Errors
    /// The invalid part, in one line.
    pub(super) fn new(pattern: &str, syntax: PatternSyntax) -> Result<ParsedPattern, String> {
        let flags = match syntax {
            PatternSyntax::Plain => "",
            PatternSyntax::Verbose => "(?x)",
        };
        let tree = Expr::parse_tree(&format!("{flags}{pattern}"));
        tree.map(|tree| ParsedPattern(tree.expr)).map_err(|error| super::last_line(&error.to_string()))
    }

    /// Whether the pattern contains an element that only the backtracking engine supports within bounds.
    pub(super) fn needs_backtracking(&self) -> bool {
        self.0.has_descendant_or_self(is_backtracking)
    }

    /// Number of times that a step may examine the text.
    ///
    /// # Errors
    /// An element takes time without a bound; the message suggests an alternative.
    pub(super) fn weight(&self) -> Result<u32, &'static str> {
        let mut weight = 1;
        weigh(&self.0, false, &mut weight)?;
        for parts in [characters(&self.0) / CHARACTERS_FEW, groups(&self.0) / GROUPS_FEW] {
            let parts = u32::try_from(parts).unwrap_or(u32::MAX);
            weight = weight.saturating_mul(parts.saturating_add(1));
        }
        Ok(weight)
    }
}

fn is_backtracking(expr: &Expr) -> bool {
    use Expr::{AtomicGroup, Backref, Conditional};
    matches!(expr, Expr::LookAround(..) | Backref { .. } | AtomicGroup(_) | Conditional { .. })
}

/// Adds the work without a step; `repeats` is true inside a repetition.
fn weigh(expr: &Expr, repeats: bool, weight: &mut u32) -> Result<(), &'static str> {
    match expr {
        // The engine takes one step whether the body matches or not, so the body runs once per step.
        Expr::LookAround(body, LookAround::LookAheadNeg | LookAround::LookBehindNeg) => {
            *weight = weight.saturating_add(steps_within(body));
            return weigh(body, false, weight);
        }
        Expr::AtomicGroup(body) if is_run(body) => {}
        Expr::LookAround(body, _) | Expr::AtomicGroup(body) => {
            if repeats {
                return Err(
                    "look-ahead, look-behind or an atomic group inside a repetition takes time without \
                            bounds: put it before the repetition, or write a negative one",
                );
            }
            *weight = weight.saturating_add(1 + steps_within(body));
        }
        Expr::Assertion(Assertion::EndTextIgnoreTrailingNewlines { .. }) if repeats => {
            return Err("\\Z inside a repetition takes time without bounds: put it behind the repetition");
        }
        Expr::Conditional { condition, .. } => {
            *weight = weight.saturating_add(1 + steps_within(condition));
        }
        Expr::Repeat { child, lo, hi, .. } => {
            let turns = if *hi == usize::MAX { *lo } else { *hi };
            if turns > 1 && may_be_empty(child) {
                // Iterations that consume no text all run, each time the repetition is entered.
                if repeats || turns > TURNS_FEW {
                    return Err(
                        "a counted repetition of what may be empty takes time without bounds: let it \
                                repeat what is not empty, few times and outside other repetitions",
                    );
                }
                *weight = weight.saturating_add(1);
            }
            if *lo > TURNS_FEW {
                *weight = weight.saturating_add(STEPPED);
            }
            return weigh(child, repeats || *hi > 1, weight);
        }
        Expr::SubroutineCall(_)
        | Expr::DefineGroup { .. }
        | Expr::Absent(_)
        | Expr::BackrefWithRelativeRecursionLevel { .. }
        | Expr::AstNode(..) => {
            return Err(
                "calls of groups and absent operators are not supported: write out what they stand for",
            );
        }
        _ => {}
    }
    expr.children_iter().try_for_each(|child| weigh(child, repeats, weight))
}

/// Weight of a body with a repetition that does not run as an automaton. After the body has matched, its
/// backtracking points are discarded, so its iterations are never counted.
fn steps_within(body: &Expr) -> u32 {
    let repeats = |expr: &Expr| matches!(expr, Expr::Repeat { hi, .. } if *hi > 1);
    let is_stepped = body.has_descendant_or_self(is_backtracking) && body.has_descendant_or_self(repeats);
    if is_stepped { STEPPED } else { 0 }
}

/// Number of characters with all counted repetitions expanded.
fn characters(expr: &Expr) -> usize {
    match expr {
        Expr::Literal { val, .. } => val.len(),
        Expr::Repeat { child, lo, hi, .. } => {
            let turns = if *hi == usize::MAX { *lo } else { *hi };
            characters(child).saturating_mul(turns.max(1))
        }
        _ => expr.children_iter().map(characters).fold(1, usize::saturating_add),
    }
}

/// Number of capture groups.
fn groups(expr: &Expr) -> usize {
    let own = usize::from(matches!(expr, Expr::Group(_)));
    expr.children_iter().map(groups).fold(own, usize::saturating_add)
}

/// Whether the expression repeats a single character (`[^/]++`), which examines only the bytes that it
/// consumes.
fn is_run(expr: &Expr) -> bool {
    let Expr::Repeat { child, .. } = expr else { return false };
    matches!(**child, Expr::Any { .. } | Expr::Delegate { .. })
        || matches!(&**child, Expr::Literal { val, .. } if val.chars().count() == 1)
}

/// Whether the expression may match the empty string; true for unknown expressions.
fn may_be_empty(expr: &Expr) -> bool {
    match expr {
        Expr::Any { .. } | Expr::GeneralNewline { .. } | Expr::Delegate { .. } => false,
        Expr::Literal { val, .. } => val.is_empty(),
        Expr::LiteralBytes { bytes } => bytes.is_empty(),
        Expr::Concat(parts) => parts.iter().all(may_be_empty),
        Expr::Alt(branches) => branches.iter().any(may_be_empty),
        Expr::Group(child) => may_be_empty(child),
        Expr::AtomicGroup(child) => may_be_empty(child),
        Expr::Repeat { child, lo, .. } => *lo == 0 || may_be_empty(child),
        Expr::Conditional { true_branch, false_branch, .. } => {
            may_be_empty(true_branch) || may_be_empty(false_branch)
        }
        _ => true,
    }
}
