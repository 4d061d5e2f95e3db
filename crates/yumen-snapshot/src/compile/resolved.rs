//! Addresses of host names, as an input of compilation.
//!
//! Knows no resolver.

use std::net::IpAddr;

use super::{Compiler, SetOfNames};

impl Compiler {
    /// Takes the addresses of a host, none where it cannot be resolved; notes who must be compiled again.
    pub(super) fn resolve(&mut self, host: Box<str>, mut addrs: Vec<IpAddr>, rebuild: &mut SetOfNames) {
        let Some(owners) = self.hosts.get(&host) else { return };
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
