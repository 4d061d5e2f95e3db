//! The scope of each host name on one listener.

use yumen_config::resource::WildcardLabels;

use super::ScopeSlotId;
use crate::router::{ReversedKey, Trie, host_key};

/// The pattern of a scope without host names.
pub(crate) const ANY_HOST: &str = "*";

/// The names that a pattern stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostReach {
    /// The pattern itself.
    Exact,
    /// Names that end with this many bytes of the pattern, after exactly one label.
    OneLabel { suffix: u16 },
    /// Names that end with this many bytes of the pattern, after one or more labels.
    AnyLabels { suffix: u16 },
}

impl HostReach {
    /// Whether the host, which the search found by the pattern's key, is one of its names.
    fn admits(self, host: &[u8]) -> bool {
        let before = |suffix: u16| host.len().saturating_sub(usize::from(suffix));
        match self {
            HostReach::Exact => true,
            // A wildcard stands for at least one label, which has at least one byte (RFC 1035 §3.1).
            HostReach::AnyLabels { suffix } => suffix == 0 || before(suffix) > 0,
            HostReach::OneLabel { suffix: 0 } => true,
            HostReach::OneLabel { suffix } => {
                let label = &host[..before(suffix)];
                !label.is_empty() && !label.contains(&b'.')
            }
        }
    }
}

/// The scope that has a host pattern on a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScopeOfHost {
    pub(crate) slot: ScopeSlotId,
    pub(crate) reach: HostReach,
    /// Whether the scope passes TLS through.
    pub(crate) passes_through: bool,
}

impl ScopeOfHost {
    pub(crate) fn new(
        slot: ScopeSlotId,
        pattern: &str,
        wildcard: WildcardLabels,
        passes_through: bool,
    ) -> ScopeOfHost {
        let reach = match (pattern.strip_prefix('*'), wildcard) {
            (None, _) => HostReach::Exact,
            (Some(suffix), WildcardLabels::Any) => HostReach::AnyLabels { suffix: length(suffix) },
            (Some(suffix), WildcardLabels::One) => HostReach::OneLabel { suffix: length(suffix) },
        };
        ScopeOfHost { slot, reach, passes_through }
    }
}

fn length(suffix: &str) -> u16 {
    u16::try_from(suffix.len()).unwrap_or(u16::MAX)
}

/// The patterns of a listener's scopes, as a persistent trie: a clone shares all nodes.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostTrie(Trie<ScopeOfHost>);

impl HostTrie {
    /// Replaces the scope of a pattern in lower case; returns the previous one.
    pub(crate) fn set(&mut self, pattern: &str, scope: Option<ScopeOfHost>) -> Option<ScopeOfHost> {
        let (key, mut former) = (host_key(pattern), None);
        self.0.update(&key.bytes, key.reach, |previous| {
            former = previous;
            scope
        });
        former
    }

    /// The most specific scope that has the host: the exact name, then wildcards from the longest.
    #[inline]
    fn find(&self, host: &[u8]) -> Option<ScopeSlotId> {
        self.0.longest(ReversedKey(host), |found| found.reach.admits(host)).map(|found| found.slot)
    }
}

/// The scope of each host name on a listener.
#[derive(Debug, Clone, Default)]
pub(crate) enum HostMap {
    /// The listener has no scope.
    #[default]
    None,
    /// One scope has every host, so a look-up costs one branch.
    Any(ScopeSlotId),
    /// Scopes by host pattern.
    Named(HostTrie),
}

impl HostMap {
    /// The scope of a host in lower case; the empty name stands for a request or a handshake without one.
    #[inline]
    pub(crate) fn find(&self, host: &[u8]) -> Option<ScopeSlotId> {
        match self {
            HostMap::None => None,
            HostMap::Any(slot) => Some(*slot),
            HostMap::Named(hosts) => hosts.find(host),
        }
    }
}

#[cfg(test)]
mod tests;
