//! Compilation of listeners.

use yumen_base::{IpSet, Problem};
use yumen_config::resource::{ListenerProtocolSpec, ListenerSpec};
use yumen_config::{InvalidSettings, decode};

use super::names::ObjectName;
use super::{Compiler, StageResult, invalid};
use crate::scope::{ListenProtocol, ListenSettings};

impl Compiler {
    /// Builds a listener from its text. A disabled one is not in force.
    pub(super) fn stage_listener(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let refused = |error: InvalidSettings| vec![invalid(name, error)];
        let written: ListenerSpec = decode(json).map_err(refused)?;
        let settings = settings_of(&written).map_err(refused)?;
        match written.status {
            0 => self.downstream.listeners.remove(&name.id),
            _ if self.downstream.listeners.put(&name.id, written.create_time.unwrap_or(0), settings) => {}
            _ => {
                let message = "more than 65535 listeners";
                return Err(vec![Problem::error(name.to_string(), "", message)]);
            }
        }
        Ok(Vec::new())
    }
}

fn settings_of(written: &ListenerSpec) -> Result<ListenSettings, InvalidSettings> {
    let address = written.bind_address()?;
    let networks = written.proxy_protocol_from.as_deref().unwrap_or_default();
    let proxy_from = IpSet::parse(networks.iter().map(String::as_str))
        .map_err(|message| InvalidSettings::at("proxy_protocol_from", message))?;
    Ok(ListenSettings {
        address,
        protocol: protocol_of(written.protocol),
        port: written.port.unwrap_or(address.port()),
        proxy_from,
        http3: written.http3,
        backlog: written.backlog,
    })
}

fn protocol_of(written: ListenerProtocolSpec) -> ListenProtocol {
    match written {
        ListenerProtocolSpec::Http => ListenProtocol::Http,
        ListenerProtocolSpec::Https => ListenProtocol::Https,
        ListenerProtocolSpec::Tcp => ListenProtocol::Tcp,
        ListenerProtocolSpec::Tls => ListenProtocol::Tls,
        ListenerProtocolSpec::Udp => ListenProtocol::Udp,
    }
}

#[cfg(test)]
mod tests;
