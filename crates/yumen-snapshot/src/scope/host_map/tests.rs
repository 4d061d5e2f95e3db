use yumen_config::resource::WildcardLabels::{self, Any, One};

use super::*;

/// The patterns with the slots 0, 1 and so on.
fn trie(patterns: &[(&str, WildcardLabels)]) -> HostTrie {
    let mut hosts = HostTrie::default();
    for (slot, (pattern, wildcard)) in patterns.iter().enumerate() {
        let scope = ScopeOfHost::new(ScopeSlotId(slot as u32), pattern, *wildcard, false);
        assert_eq!(hosts.set(pattern, Some(scope)), None, "{pattern}");
    }
    hosts
}

#[track_caller]
fn check(patterns: &[(&str, WildcardLabels)], host: &str, expected: Option<u32>) {
    assert_eq!(trie(patterns).find(host.as_bytes()).map(|slot| slot.0), expected, "{host} in {patterns:?}");
}

#[test]
fn a_wildcard_stands_for_one_label_or_for_any_number() {
    let any = [("*.example.com", Any)];
    check(&any, "a.example.com", Some(0));
    check(&any, "a.b.example.com", Some(0));
    check(&any, "example.com", None);
    check(&any, ".example.com", None);
    check(&any, "aexample.com", None);
    let one = [("*.example.com", One)];
    check(&one, "a.example.com", Some(0));
    check(&one, "a.b.example.com", None);
    check(&one, "example.com", None);
    check(&one, ".example.com", None);
    check(&one, "", None);
}

#[test]
fn the_most_specific_pattern_has_a_host() {
    let all = [("*", Any), ("*.example.com", Any), ("*.foo.example.com", Any), ("abc.foo.example.com", Any)];
    check(&all, "abc.foo.example.com", Some(3));
    check(&all, "def.foo.example.com", Some(2));
    check(&all, "x.abc.foo.example.com", Some(2));
    check(&all, "bar.example.com", Some(1));
    check(&all, "example.com", Some(0));
    check(&all, "", Some(0));
    check(&all[1..], "example.com", None);
}

#[test]
fn a_wildcard_of_one_label_leaves_deeper_names_to_the_next_pattern() {
    let all = [("*.a.test", One), ("*.test", Any), ("*", One)];
    check(&all, "x.a.test", Some(0));
    check(&all, "y.x.a.test", Some(1));
    check(&all, "other", Some(2));
    check(&all[..1], "y.x.a.test", None);
}

#[test]
fn an_exact_host_is_no_suffix_of_others() {
    let hosts = [("example.com", Any), ("ample.com", Any)];
    check(&hosts, "example.com", Some(0));
    check(&hosts, "ample.com", Some(1));
    check(&hosts, "mple.com", None);
    check(&hosts, "www.example.com", None);
}

#[test]
fn a_pattern_passes_to_another_scope_and_away() {
    let mut hosts = trie(&[("*.a.test", Any), ("a.test", Any)]);
    let other = ScopeOfHost::new(ScopeSlotId(7), "*.a.test", One, true);
    let former = hosts.set("*.a.test", Some(other)).expect("a former scope");
    assert_eq!((former.slot, former.passes_through), (ScopeSlotId(0), false));
    assert_eq!(hosts.find(b"x.a.test"), Some(ScopeSlotId(7)));
    let snapshot = hosts.clone();
    assert_eq!(hosts.set("*.a.test", None), Some(other));
    assert_eq!((hosts.find(b"x.a.test"), hosts.find(b"a.test")), (None, Some(ScopeSlotId(1))));
    assert_eq!(snapshot.find(b"x.a.test"), Some(ScopeSlotId(7)), "a clone keeps its state");
}
