//! Addresses of host names, as an input of compilation.
//!
//! Knows no resolver.

use std::net::IpAddr;
use std::sync::Arc;

use super::{Compiler, DiscoveryQuery, SetOfNames};

/// Who wants the addresses of a host.
#[derive(Debug)]
pub(super) struct HostOwners {
    pub(super) owners: SetOfNames,
    /// The number of the want: it is another one where the name was let go in between.
    pub(super) number: u64,
}

impl Compiler {
    /// The host names whose addresses are wanted, each with the number of that want: one that was let go and is
    /// wanted again has another number, and nothing is known of it here any more.
    pub fn hosts(&self) -> impl Iterator<Item = (&str, u64)> {
        self.hosts.iter().map(|(host, wanted)| (&**host, wanted.number))
    }

    /// The services whose nodes are wanted, numbered likewise.
    pub fn services(&self) -> impl Iterator<Item = (&Arc<DiscoveryQuery>, u64)> {
        self.discovered.wanted()
    }

    /// Grows with every change of [`Compiler::hosts`] or [`Compiler::services`].
    pub fn wants(&self) -> u64 {
        self.wants
    }

    /// Forgets names and services that nobody wants by the end of a change. Not before: an object that takes the
    /// place of another one wants what that wanted, and finds what is known of it.
    pub(super) fn remove_unused(&mut self) {
        let mut has_gone = false;
        for host in std::mem::take(&mut self.released) {
            if self.hosts.get(&host).is_some_and(|wanted| wanted.owners.is_empty()) {
                self.hosts.remove(&host);
                self.resolved.remove(&host);
                self.unresolved.remove(&host);
                has_gone = true;
            }
        }
        has_gone |= self.discovered.remove_unused();
        self.wants += u64::from(has_gone);
    }

    /// Takes the addresses of a host, none where it cannot be resolved; notes who must be compiled again.
    pub(super) fn resolve(&mut self, host: Box<str>, mut addrs: Vec<IpAddr>, rebuild: &mut SetOfNames) {
        let Some(HostOwners { owners, .. }) = self.hosts.get(&host) else { return };
        if addrs.is_empty() {
            self.touched.extend(owners.iter().cloned());
            self.unresolved.insert(host);
            return;
        }
        // The order of an answer rotates; it must not look like a change.
        addrs.sort_unstable();
        addrs.dedup();
        self.unresolved.remove(&host);
        if self.resolved.get(&host).is_none_or(|known| **known != *addrs) {
            rebuild.extend(owners.iter().cloned());
            self.resolved.insert(host, addrs.into());
        }
    }
}

#[cfg(test)]
mod tests;
