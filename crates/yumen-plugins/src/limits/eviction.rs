//! Eviction from a full shard of a counter table: max-min fairness among the rules.
//!
//! A rule loses keys only while it has more keys than any rule that loses none. Invented keys of one rule
//! evict each other and no key of another rule.

use std::collections::HashMap;
use std::hash::Hash;

use foldhash::fast::RandomState;

/// The keys that one rule loses.
#[derive(Debug, PartialEq, Eq)]
struct RuleCut {
    /// Counters that end before this time are evicted.
    until_ms: u64,
    /// Number of the counters that end at this time to evict.
    ties: usize,
}

/// Selects the keys to evict from a shard so that `keys_left` remain.
pub(super) struct EvictionPlan<R> {
    /// By rule; `None` for all rules together.
    cuts: HashMap<Option<R>, RuleCut, RandomState>,
    is_by_rule: bool,
}

impl<R: Hash + Eq + Copy> EvictionPlan<R> {
    /// A plan for keys by rule and end of their counter; `None` for a counter that cannot be evicted.
    pub(super) fn new(keys: impl Iterator<Item = (R, Option<u64>)> + Clone, keys_left: usize) -> Self {
        let mut sizes: HashMap<R, usize, RandomState> = HashMap::default();
        keys.clone().for_each(|(rule, _)| *sizes.entry(rule).or_default() += 1);
        let level = fair_level(sizes.values().copied().collect(), keys_left);
        // With more rules than keys that may remain, the counters that end first are evicted regardless of
        // their rule.
        let is_by_rule = level > 0;
        let total: usize = sizes.values().sum();
        let mut ends: HashMap<Option<R>, Vec<u64>, RandomState> = HashMap::default();
        for (rule, end_ms) in keys {
            if let Some(end_ms) = end_ms
                && (!is_by_rule || sizes[&rule] > level)
            {
                ends.entry(is_by_rule.then_some(rule)).or_default().push(end_ms);
            }
        }
        let cut = |(rule, ends): (Option<R>, Vec<u64>)| {
            let excess = rule.map_or(total.saturating_sub(keys_left), |rule| sizes[&rule] - level);
            Some((rule, first_to_end(ends, excess)?))
        };
        EvictionPlan { cuts: ends.into_iter().filter_map(cut).collect(), is_by_rule }
    }

    /// Whether the key is evicted. Must be called once per key.
    pub(super) fn evicts(&mut self, rule: R, end_ms: Option<u64>) -> bool {
        let (Some(cut), Some(end_ms)) = (self.cuts.get_mut(&self.is_by_rule.then_some(rule)), end_ms) else {
            return false;
        };
        // Of the keys that end at the same time, only as many as needed are evicted.
        if end_ms == cut.until_ms && cut.ties > 0 {
            cut.ties -= 1;
            return true;
        }
        end_ms < cut.until_ms
    }
}

/// The cut that takes the `excess` counters that end first.
fn first_to_end(mut ends: Vec<u64>, excess: usize) -> Option<RuleCut> {
    let last = excess.min(ends.len()).checked_sub(1)?;
    // The write lock of the shard is held: a selection takes linear time, unlike a sort.
    let (before, until_ms, _) = ends.select_nth_unstable(last);
    let until_ms = *until_ms;
    let ties = 1 + before.iter().filter(|end_ms| **end_ms == until_ms).count();
    Some(RuleCut { until_ms, ties })
}

/// The largest number of keys per rule with which all rules together have at most `room`.
fn fair_level(mut sizes: Vec<usize>, room: usize) -> usize {
    sizes.sort_unstable();
    let mut left = room;
    for (at, size) in sizes.iter().enumerate() {
        let rules = sizes.len() - at;
        // Sizes ascend, so every remaining rule is at least this large.
        if size * rules > left {
            return left / rules;
        }
        left -= size;
    }
    usize::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_below_the_level_keep_all_their_keys() {
        for (sizes, room, expected) in [
            (&[][..], 10, usize::MAX),
            (&[3, 4], 7, usize::MAX),
            (&[2, 100], 12, 10),
            (&[100, 2, 50], 12, 5),
            (&[5, 5, 5], 12, 4),
            (&[1, 1, 1], 2, 0),
        ] {
            assert_eq!(fair_level(sizes.to_vec(), room), expected, "{sizes:?} in {room}");
        }
    }

    /// Checks the number of keys that each rule keeps, from `(rule, end, count)`.
    fn check(keys: &[(char, Option<u64>, usize)], room: usize, expected: &[(char, usize)]) {
        let keys = keys.iter().flat_map(|(rule, end, times)| vec![(*rule, *end); *times]);
        let mut plan = EvictionPlan::new(keys.clone(), room);
        let mut left: Vec<(char, usize)> = expected.iter().map(|(rule, _)| (*rule, 0)).collect();
        for (rule, end) in keys.clone() {
            if !plan.evicts(rule, end) {
                left.iter_mut().find(|(one, _)| *one == rule).expect("a rule").1 += 1;
            }
        }
        assert_eq!(left, expected, "{keys:?}");
    }

    #[test]
    fn the_largest_rule_gives_way_by_its_first_counters_to_end() {
        check(&[('a', Some(1), 3), ('b', Some(9), 90)], 60, &[('a', 3), ('b', 57)]);
        check(&[('a', Some(1), 30), ('a', Some(2), 30)], 45, &[('a', 45)]);
        check(
            &[('a', Some(5), 30), ('b', Some(5), 30), ('c', None, 4)],
            24,
            &[('a', 10), ('b', 10), ('c', 4)],
        );
    }

    #[test]
    fn counters_that_must_stay_are_not_evicted_in_place_of_another_rules() {
        check(&[('a', None, 50), ('b', Some(1), 5)], 20, &[('a', 50), ('b', 5)]);
        check(&[('a', None, 50), ('a', Some(1), 5)], 20, &[('a', 50)]);
    }

    #[test]
    fn more_rules_than_room_lose_the_counters_that_end_first() {
        check(&[('a', Some(3), 1), ('b', Some(1), 1), ('c', Some(2), 1)], 2, &[('a', 1), ('b', 0), ('c', 1)]);
    }
}
