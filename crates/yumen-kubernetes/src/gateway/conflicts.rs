//! Conflicts between the sections of a Gateway: by port, protocol and host name.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::sections::ListenerSection;
use crate::derived::ConditionReason;

/// The first sections of a port.
#[derive(Default)]
struct PortUse {
    protocol: Option<(&'static str, String)>,
    /// Names of sections by host name.
    hosts: BTreeMap<Option<Arc<str>>, String>,
}

/// Marks each section that conflicts with an earlier one. Earlier sections are served.
pub(super) fn mark_conflicts(sections: &mut [ListenerSection<'_>]) {
    let mut ports: BTreeMap<(u16, bool), PortUse> = BTreeMap::new();
    for section in sections {
        let Some(protocol) = section.protocol.listener_protocol() else { continue };
        let port = ports.entry((section.spec.port, section.protocol.is_udp())).or_default();
        let name = format!("{} of {}", section.spec.name, section.parent);
        let (first_protocol, first) = port.protocol.get_or_insert_with(|| (protocol, name.clone()));
        if *first_protocol != protocol {
            let message = format!("Listener {first} uses port {} for another protocol.", section.spec.port);
            section.conflict = Some(ConditionReason::new("ProtocolConflict", message));
            continue;
        }
        match port.hosts.get(&section.hostname) {
            Some(first) => {
                let message = format!("Listener {first} has the same port, protocol and host name.");
                section.conflict = Some(ConditionReason::new("HostnameConflict", message));
            }
            None => {
                port.hosts.insert(section.hostname.clone(), name);
            }
        }
    }
}
