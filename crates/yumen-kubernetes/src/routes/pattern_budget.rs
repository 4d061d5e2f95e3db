//! Judgement of regular expressions, before the compiler sees them.
//!
//! Their authors share the gateway: a pattern of few bytes may take megabytes when compiled, and a pattern that the
//! compiler refuses would put the whole route out of force.

use yumen_plugin::PatternOptions;
use yumen_plugin::pattern::compiled_bytes;

use super::rule::RuleDefect;

/// Most memory of one compiled pattern, and of all patterns of an object.
const PATTERN_BYTES_MAX: usize = 1 << 20;
const OBJECT_BYTES_MAX: usize = 4 << 20;

/// The memory that is left for the patterns of one object.
pub(super) struct PatternBudget {
    left: usize,
}

impl Default for PatternBudget {
    fn default() -> PatternBudget {
        PatternBudget { left: OBJECT_BYTES_MAX }
    }
}

impl PatternBudget {
    /// Charges a pattern. `place` names its member.
    pub(super) fn take(&mut self, place: &str, pattern: &str) -> Result<(), RuleDefect> {
        let bytes_max = self.left.min(PATTERN_BYTES_MAX);
        if bytes_max == 0 {
            let message =
                format!("{place}: the patterns of the object take more than {OBJECT_BYTES_MAX} bytes");
            return Err(RuleDefect::unsupported(message));
        }
        // The compiler adds the anchors of the whole text.
        let compiled = compiled_bytes(&format!("^(?:{pattern})$"), PatternOptions::default(), bytes_max);
        let bytes = compiled.map_err(|reason| {
            RuleDefect::unsupported(format!("{place}: \"{pattern}\" is no pattern: {reason}"))
        })?;
        self.left -= bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of times that a new budget takes a pattern, at most 5 000.
    fn count(pattern: &str) -> usize {
        let mut budget = PatternBudget::default();
        (0..5_000).take_while(|_| budget.take("headers[0]", pattern).is_ok()).count()
    }

    #[test]
    fn patterns_are_taken_until_their_memory_is_used_up() {
        for (pattern, expected) in [
            ("/a/[0-9]+", 256..=256),
            // Repetitions take more than their text suggests.
            ("(?:[a-z0-9]{1,40}/){60}", 4..=64),
            ("(?!admin)[a-z]+", 16..=256),
            ("(?:a|b|c|[d-z0-9]){30000}", 0..=0),
            ("([", 0..=0),
            ("(?<=a*)b", 0..=0),
        ] {
            let taken = count(pattern);
            assert!(expected.contains(&taken), "{pattern}: {taken}");
        }
    }
}
