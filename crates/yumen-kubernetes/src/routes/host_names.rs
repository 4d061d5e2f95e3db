//! Intersection of the host names of listeners and routes.

use std::sync::Arc;

/// Whether a listener serves any host of a route. An absent or empty list of either side stands for every host.
pub(super) fn intersects(listener: Option<&str>, route: &[Arc<str>]) -> bool {
    let Some(listener) = listener else { return true };
    route.is_empty() || route.iter().any(|host| overlaps(listener, host))
}

/// Whether a listener serves a host that two routes have in common.
pub(super) fn meet_on(listener: Option<&str>, one: &[Arc<str>], other: &[Arc<str>]) -> bool {
    if one.is_empty() || other.is_empty() {
        return intersects(listener, one) && intersects(listener, other);
    }
    let both = |a: &str, b: &str| {
        // The narrower of two patterns that overlap names the hosts that both have.
        let narrower = if !a.starts_with('*') || b.starts_with('*') && a.len() > b.len() { a } else { b };
        overlaps(a, b) && listener.is_none_or(|listener| overlaps(listener, narrower))
    };
    one.iter().any(|a| other.iter().any(|b| both(a, b)))
}

/// Whether a host name meets both patterns. `*` stands for one or more labels.
fn overlaps(a: &str, b: &str) -> bool {
    match (a.strip_prefix('*'), b.strip_prefix('*')) {
        (None, None) => a.eq_ignore_ascii_case(b),
        (Some(end), None) => is_below(b, end),
        (None, Some(end)) => is_below(a, end),
        // Of two wildcards the longer names the hosts that both have.
        (Some(one), Some(other)) => ends_with(one, other) || ends_with(other, one),
    }
}

/// Whether `host` is below `end`, which begins with a dot.
fn is_below(host: &str, end: &str) -> bool {
    host.len() > end.len() && ends_with(host, end)
}

fn ends_with(text: &str, end: &str) -> bool {
    let (text, end) = (text.as_bytes(), end.as_bytes());
    text.len() >= end.len() && text[text.len() - end.len()..].eq_ignore_ascii_case(end)
}

#[cfg(test)]
mod tests {
    use super::{intersects, meet_on};

    fn check(listener: Option<&str>, route: &[&str], expected: bool) {
        let route: Vec<_> = route.iter().map(|host| (*host).into()).collect();
        assert_eq!(intersects(listener, &route), expected, "{listener:?} and {route:?}");
    }

    #[test]
    fn names_and_wildcards_meet() {
        check(None, &[], true);
        check(None, &["a.example.com"], true);
        check(Some("a.example.com"), &[], true);
        check(Some("a.example.com"), &["A.Example.com"], true);
        check(Some("a.example.com"), &["b.example.com"], false);
        check(Some("a.example.com"), &["b.example.com", "*.example.com"], true);
        check(Some("*.example.com"), &["example.com"], false);
        check(Some("*.example.com"), &["a.b.example.com"], true);
        check(Some("*.example.com"), &["badexample.com"], false);
        check(Some("example.com"), &["*.example.com"], false);
        check(Some("*.com"), &["*.example.com"], true);
        check(Some("*.a.example.com"), &["*.example.com"], true);
        check(Some("*.example.com"), &["*.example.org"], false);
        check(Some("*.ple.com"), &["*.example.com"], false);
    }

    fn check_meeting(listener: Option<&str>, one: &[&str], other: &[&str], expected: bool) {
        let list = |names: &[&str]| -> Vec<std::sync::Arc<str>> {
            names.iter().map(|name| (*name).into()).collect()
        };
        let (a, b) = (list(one), list(other));
        assert_eq!(meet_on(listener, &a, &b), expected, "{listener:?}, {one:?} and {other:?}");
        assert_eq!(meet_on(listener, &b, &a), expected, "{listener:?}, {other:?} and {one:?}");
    }

    #[test]
    fn routes_meet_on_hosts_of_the_listener_only() {
        check_meeting(None, &[], &[], true);
        check_meeting(None, &[], &["a.example.com"], true);
        check_meeting(Some("b.example.com"), &[], &["a.example.com"], false);
        check_meeting(None, &["a.example.com"], &["b.example.com"], false);
        check_meeting(None, &["*.example.com"], &["b.example.com"], true);
        check_meeting(Some("a.example.com"), &["*.example.com"], &["b.example.com"], false);
        check_meeting(Some("a.example.com"), &["*.example.com"], &["*.com"], true);
        check_meeting(Some("a.example.org"), &["*.example.com"], &["*.com"], false);
    }
}
