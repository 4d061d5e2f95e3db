//! Kong's order of routes in a router that looks at hosts, then at paths, then at priorities.
//!
//! Kong sorts all routes by one number. Here the more specific host and path is looked at first, and
//! priority decides among equals. Where the two disagree, the route that must wait is placed where a less
//! specific one is looked at, and asks for its own host and path by a condition.

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;

/// What Kong sorts by, the most important first; the greater goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct KongRouteRank {
    /// How many kinds of attributes the route asks for.
    pub(super) kinds: u8,
    /// Whether it names hosts, none of them with a wildcard.
    pub(super) has_plain_hosts: bool,
    pub(super) header_count: u8,
    pub(super) is_pattern: bool,
    /// Of patterns only.
    pub(super) regex_priority: u64,
    /// Of prefixes only.
    pub(super) path_length: usize,
}

/// One path of one route, as it would be placed if nothing stood against it.
#[derive(Debug, Clone, Default)]
pub(super) struct KongPathCandidate {
    /// To which route it belongs: those of one route do not compete.
    pub(super) route: usize,
    pub(super) rank: KongRouteRank,
    /// Lower-case names, or suffixes behind a `*`; empty is any host.
    pub(super) hosts: Vec<String>,
    /// What all its paths begin with.
    pub(super) prefix: String,
    /// Empty is any method.
    pub(super) methods: Vec<String>,
}

/// Where a candidate is placed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PathPlacement {
    /// Whether it stands among the routes of any host, although it has hosts.
    pub(super) any_host: bool,
    /// The prefix it stands under.
    pub(super) prefix: String,
    /// `None` where nothing else stands in the same place.
    pub(super) priority: Option<i64>,
}

/// Places all candidates, which come in the order of the file; of equals the first goes first.
pub(super) fn place(candidates: &[KongPathCandidate]) -> Vec<PathPlacement> {
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by_key(|at| (std::cmp::Reverse(candidates[*at].rank), *at));
    let natural = |candidate: &KongPathCandidate| PathPlacement {
        prefix: candidate.prefix.clone(),
        ..PathPlacement::default()
    };
    let mut places: Vec<PathPlacement> = candidates.iter().map(natural).collect();
    let mut before: Before<'_> = BTreeMap::new();
    for later in &order {
        let second = &candidates[*later];
        let rivals = meeting(&before, &second.prefix);
        // Every step makes the place less specific, so this comes to an end.
        loop {
            let yields_to = |earlier: &usize| {
                weaker_placement(&candidates[*earlier], &places[*earlier], second, &places[*later])
            };
            let Some(moved) = rivals.iter().find_map(yields_to) else { break };
            places[*later] = moved;
        }
        before.entry(&second.prefix).or_default().push(*later);
    }
    assign_priorities(candidates, &order, &mut places);
    places
}

/// Those that have their places, by what their paths begin with.
type Before<'c> = BTreeMap<&'c str, Vec<usize>>;

/// Those whose paths may be ones that begin with `prefix`.
fn meeting(before: &Before<'_>, prefix: &str) -> Vec<usize> {
    let shorter = prefix.char_indices().filter_map(|(end, _)| before.get(&prefix[..end]));
    let range = (Bound::Included(prefix), Bound::Unbounded);
    let longer = before.range::<str, _>(range).take_while(|(other, _)| other.starts_with(prefix));
    shorter.chain(longer.map(|(_, all)| all)).flatten().copied().collect()
}

/// The less specific place of `second`, whose paths may be those of `first`, that lets `first` go first; `None` where it does already.
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
    let (mine, theirs) = (levels(first, at), levels(second, now));
    let pairs = || {
        mine.iter().flat_map(|a| theirs.iter().map(move |b| (*a, *b))).filter(|(a, b)| hosts_overlap(a, b))
    };
    if pairs().any(|(a, b)| weight(b) > weight(a)) {
        return Some(PathPlacement { any_host: true, ..now.clone() });
    }
    let same_level = pairs().any(|(a, b)| weight(b) == weight(a));
    let is_deeper = now.prefix.len() > at.prefix.len();
    (same_level && is_deeper).then(|| PathPlacement { prefix: at.prefix.clone(), ..now.clone() })
}

/// The hosts under which a candidate is looked for; one empty text for any host.
fn levels<'c>(candidate: &'c KongPathCandidate, place: &PathPlacement) -> Vec<&'c str> {
    match place.any_host || candidate.hosts.is_empty() {
        true => vec![""],
        false => candidate.hosts.iter().map(String::as_str).collect(),
    }
}

/// How early a host is looked at: an exact one first, then wildcards from the longest, then any.
fn weight(host: &str) -> usize {
    match host.strip_prefix('*') {
        Some(suffix) => suffix.len(),
        None if host.is_empty() => 0,
        None => usize::MAX,
    }
}

/// Whether a request can be for both hosts.
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

/// Numbers from the last to the first for those that share a place with another route.
fn assign_priorities(candidates: &[KongPathCandidate], order: &[usize], places: &mut [PathPlacement]) {
    let mut buckets: HashMap<(&str, String), Vec<usize>> = HashMap::new();
    for at in order {
        for host in levels(&candidates[*at], &places[*at]) {
            buckets.entry((host, places[*at].prefix.clone())).or_default().push(*at);
        }
    }
    let mut shares = vec![false; candidates.len()];
    for members in buckets.values().filter(|members| members.len() > 1) {
        members.iter().for_each(|at| shares[*at] = true);
    }
    let sharing = order.iter().rev().filter(|at| shares[**at]);
    for (priority, at) in sharing.enumerate() {
        places[*at].priority = Some(priority as i64);
    }
}
