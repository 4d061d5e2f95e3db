//! Compilation of listeners.

use yumen_base::{IpSet, Problem};
use yumen_config::resource::{ListenerProtocolSpec, ListenerRealIpSpec, ListenerSpec};
use yumen_config::{InvalidSettings, decode};
use yumen_plugin::real_ip::RealIpFinder;

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
    let real_ip = written.real_ip.as_ref().map(real_ip_of).transpose()?;
    Ok(ListenSettings {
        address,
        real_ip,
        protocol: protocol_of(written.protocol),
        port: written.port.unwrap_or(address.port()),
        proxy_from,
        http3: written.http3,
        backlog: written.backlog,
    })
}

fn real_ip_of(written: &ListenerRealIpSpec) -> Result<RealIpFinder, InvalidSettings> {
    let from = IpSet::parse(written.from.iter().map(String::as_str))
        .map_err(|message| InvalidSettings::at("real_ip.from", message))?;
    Ok(RealIpFinder::new(&written.source, Some(from), written.recursive))
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
