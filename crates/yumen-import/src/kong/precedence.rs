//! Kong's order of routes in the gateway's router.
//!
//! Kong sorts all routes by one rank. The gateway's router prefers the more specific host, then path; the priority
//! decides among equals. Where the orders differ, the route with the lower rank moves to a less specific placement, and
//! conditions restrict it to its host and path.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// Kong's sort key, the most significant field first. The greater rank precedes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct KongRouteRank {
    /// Number of kinds of attributes that the route matches on.
    pub(super) kinds: u8,
    /// Whether the route has hosts and none of them has a wildcard.
    pub(super) has_plain_hosts: bool,
    pub(super) header_count: u8,
    pub(super) is_pattern: bool,
    /// Patterns only.
    pub(super) regex_priority: u64,
    /// Prefixes only.
    pub(super) path_length: usize,
}

/// One path of a route, before its placement.
#[derive(Debug, Clone, Default)]
pub(super) struct KongPathCandidate {
    /// Index of the route. Paths of one route do not compete.
    pub(super) route: usize,
    pub(super) rank: KongRouteRank,
    /// Lower-case names, or suffixes after a `*`; empty for any host.
    pub(super) hosts: Vec<String>,
    /// Literal prefix of all matching paths.
    pub(super) prefix: String,
    /// Methods; empty for any.
    pub(super) methods: Vec<String>,
}

/// The placement of a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PathPlacement {
    /// Whether the candidate is placed among the routes of any host, although it has hosts.
    pub(super) any_host: bool,
    /// The prefix in the router.
    pub(super) prefix: String,
    /// `None` without another candidate in the same position.
    pub(super) priority: Option<i64>,
}

/// Places all candidates. They are in the order of the file, which decides among equal ranks.
pub(super) fn placement(candidates: &[KongPathCandidate]) -> Vec<PathPlacement> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    // The position makes the order total, since equal ranks keep the order of the file.
    order.sort_by_key(|at| (std::cmp::Reverse(candidates[*at].rank), *at));
    let natural = |candidate: &KongPathCandidate| PathPlacement {
        prefix: candidate.prefix.clone(),
        ..PathPlacement::default()
    };
    let mut placements: Vec<PathPlacement> = candidates.iter().map(natural).collect();
    let mut by_prefix: PlacedByPrefix<'_> = BTreeMap::new();
    for later in &order {
        let second = &candidates[*later];
        // Only routes of a higher rank are placed by now; a route never yields to a later one.
        let rivals = overlapping(&by_prefix, &second.prefix);
        // The loop ends, since every step makes the placement less specific.
        loop {
            let yields_to = |earlier: &usize| {
                weaker_placement(&candidates[*earlier], &placements[*earlier], second, &placements[*later])
            };
            let Some(moved) = rivals.iter().find_map(yields_to) else { break };
            placements[*later] = moved;
        }
        // Under its own prefix, not under the one of its placement: the requests that it can match stay the same.
        by_prefix.entry(&second.prefix).or_default().push(*later);
    }
    assign_priorities(candidates, &order, &mut placements);
    placements
}

/// Placed candidates by prefix.
type PlacedByPrefix<'c> = BTreeMap<&'c str, Vec<usize>>;

/// Placed candidates whose paths may begin with `prefix`, or whose prefix it may begin with.
fn overlapping(by_prefix: &PlacedByPrefix<'_>, prefix: &str) -> Vec<usize> {
    let shorter = prefix.char_indices().filter_map(|(end, _)| by_prefix.get(&prefix[..end]));
    let range = (Bound::Included(prefix), Bound::Unbounded);
    let longer = by_prefix.range::<str, _>(range).take_while(|(other, _)| other.starts_with(prefix));
    shorter.chain(longer.map(|(_, all)| all)).flatten().copied().collect()
}

/// A less specific placement of `second` that gives `first` precedence; `None` if it has precedence already.
fn weaker_placement(
    first: &KongPathCandidate,
    at: &PathPlacement,
    second: &KongPathCandidate,
    now: &PathPlacement,
) -> Option<PathPlacement> {
    if first.route == second.route && first.hosts == second.hosts && first.rank == second.rank {
        return None;
    }
    if !methods_meet(first, second) || !candidate_hosts_overlap(first, second) {
        return None;
    }
    let (first_hosts, second_hosts) = (router_hosts(first, at), router_hosts(second, now));
    let pairs = || {
        first_hosts
            .iter()
            .flat_map(|a| second_hosts.iter().map(move |b| (*a, *b)))
            .filter(|(a, b)| hosts_overlap(a, b))
    };
    if pairs().any(|(a, b)| specificity(b) > specificity(a)) {
        // The router checks hosts before paths, so only a less specific host gives way.
        return Some(PathPlacement { any_host: true, ..now.clone() });
    }
    let same_level = pairs().any(|(a, b)| specificity(b) == specificity(a));
    let is_deeper = now.prefix.len() > at.prefix.len();
    (same_level && is_deeper).then(|| PathPlacement { prefix: at.prefix.clone(), ..now.clone() })
}

/// The hosts of a candidate in the router; one empty text for any host.
fn router_hosts<'c>(candidate: &'c KongPathCandidate, placement: &PathPlacement) -> Vec<&'c str> {
    match placement.any_host || candidate.hosts.is_empty() {
        true => vec![""],
        false => candidate.hosts.iter().map(String::as_str).collect(),
    }
}

/// Precedence of a host in the router: an exact host, then wildcards from the longest, then any host.
fn specificity(host: &str) -> usize {
    match host.strip_prefix('*') {
        Some(suffix) => suffix.len(),
        None if host.is_empty() => 0,
        None => usize::MAX,
    }
}

/// Whether one host of a request can match both.
fn hosts_overlap(one: &str, other: &str) -> bool {
    match (one.strip_prefix('*'), other.strip_prefix('*')) {
        _ if one.is_empty() || other.is_empty() => true,
        (None, None) => one == other,
        (Some(suffix), None) => other.ends_with(suffix),
        (None, Some(suffix)) => one.ends_with(suffix),
        (Some(one), Some(other)) => one.ends_with(other) || other.ends_with(one),
    }
}

fn candidate_hosts_overlap(one: &KongPathCandidate, other: &KongPathCandidate) -> bool {
    let any = one.hosts.is_empty() || other.hosts.is_empty();
    any || one.hosts.iter().any(|a| other.hosts.iter().any(|b| hosts_overlap(a, b)))
}

fn methods_meet(one: &KongPathCandidate, other: &KongPathCandidate) -> bool {
    let any = one.methods.is_empty() || other.methods.is_empty();
    any || one.methods.iter().any(|method| other.methods.contains(method))
}

/// Assigns ascending priorities, from the lowest rank, to candidates that share a position.
fn assign_priorities(candidates: &[KongPathCandidate], order: &[usize], placements: &mut [PathPlacement]) {
    // One position in the router is a host with a prefix.
    let mut buckets: HashMap<(&str, String), Vec<usize>> = HashMap::new();
    for at in order {
        for host in router_hosts(&candidates[*at], &placements[*at]) {
            buckets.entry((host, placements[*at].prefix.clone())).or_default().push(*at);
        }
    }
    let mut shares = vec![false; candidates.len()];
    for members in buckets.values().filter(|members| members.len() > 1) {
        members.iter().for_each(|at| shares[*at] = true);
    }
    // One sequence over all positions, because a candidate may share several.
    let sharing = order.iter().rev().filter(|at| shares[**at]);
    for (priority, at) in sharing.enumerate() {
        placements[*at].priority = Some(priority as i64);
    }
}
