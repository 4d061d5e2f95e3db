//! Listeners that open, change and close while the gateway runs.

use std::net::SocketAddr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_base::ipset::IpSet;

use super::common::{self, Labels, ResourceId};
use super::{Kind, resource_type};
use crate::schema::InvalidSettings;

/// An address on which the gateway accepts connections, in addition to those of the node's settings. Requests that
/// arrive there are served by the routes of its scopes. Beyond APISIX.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerSpec {
    /// Id of the listener.
    pub id: Option<ResourceId>,
    /// A name for people.
    #[schemars(length(min = 1, max = 256))]
    pub name: Option<String>,
    /// A description for people.
    #[schemars(length(max = 256))]
    pub desc: Option<String>,
    /// User-defined labels.
    #[serde(default)]
    #[schemars(schema_with = "common::labels_schema")]
    pub labels: Option<Labels>,
    /// Address and port to bind: `0.0.0.0:8443`, `[::]:8443`.
    #[schemars(length(min = 1, max = 64))]
    pub address: String,
    /// The protocol of the connections.
    pub protocol: ListenerProtocolSpec,
    /// The port that clients dial if a load balancer maps it: the value of `server_port`, of redirects and of
    /// `X-Forwarded-Port`. Absent: the port of `address`.
    #[schemars(range(min = 1))]
    pub port: Option<u16>,
    /// Whether an `https` listener serves HTTP/3 on the UDP port of the same number.
    #[serde(default)]
    pub http3: bool,
    /// Addresses and networks of the load balancers whose connections begin with a PROXY protocol header.
    #[schemars(length(min = 1), extend("uniqueItems" = true))]
    pub proxy_protocol_from: Option<Vec<String>>,
    /// The client address of requests behind a load balancer, in place of the node's `real_ip`. Conditions of routes see
    /// this address.
    pub real_ip: Option<ListenerRealIpSpec>,
    /// Connections that wait in the kernel to be accepted; absent means the node's setting.
    #[schemars(range(min = 1))]
    pub backlog: Option<u32>,
    /// 1 enables the listener, 0 disables it.
    #[serde(default = "common::one")]
    #[schemars(schema_with = "common::status_schema")]
    pub status: u8,
    /// Creation time, in seconds since 1970. Of two listeners with one address the older is opened.
    pub create_time: Option<i64>,
    /// Time of the last change, in seconds since 1970.
    pub update_time: Option<i64>,
}

/// The source of the client address of requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenerRealIpSpec {
    /// The trusted proxies: addresses and networks.
    #[schemars(length(min = 1))]
    pub from: Vec<String>,
    /// The variable with the address, such as `http_x_real_ip`; of the lists `http_x_forwarded_for` and
    /// `http_forwarded` the last address counts.
    #[serde(default = "real_ip_source")]
    #[schemars(length(min = 1, max = 256))]
    pub source: String,
    /// Whether trusted addresses at the end of a list are skipped.
    #[serde(default)]
    pub recursive: bool,
}

fn real_ip_source() -> String {
    "http_x_real_ip".to_owned()
}

/// The protocol of a listener's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ListenerProtocolSpec {
    /// HTTP/1 and HTTP/2 in plaintext.
    Http,
    /// HTTP over TLS.
    Https,
    /// TCP streams.
    Tcp,
    /// Streams that begin with a TLS handshake, ended here or passed through by the mode of the scope.
    Tls,
    /// UDP sessions.
    Udp,
}

impl ListenerSpec {
    /// The address to bind.
    ///
    /// # Errors
    ///
    /// `address` is not an IP address with a port.
    pub fn bind_address(&self) -> Result<SocketAddr, InvalidSettings> {
        self.address.parse().map_err(|_| {
            let message =
                format!("{:?} is no address with a port, such as 0.0.0.0:8080 or [::]:8080", self.address);
            InvalidSettings::at("address", message)
        })
    }
}

fn settle(listener: &mut ListenerSpec) -> Result<(), InvalidSettings> {
    let address = listener.bind_address()?;
    if address.port() == 0 {
        return Err(InvalidSettings::at("address", "the port must be from 1 to 65535"));
    }
    if listener.http3 && listener.protocol != ListenerProtocolSpec::Https {
        return Err(InvalidSettings::at("http3", "only a listener of protocol https serves HTTP/3"));
    }
    let networks = listener.proxy_protocol_from.as_deref().unwrap_or_default();
    if !networks.is_empty() && listener.protocol == ListenerProtocolSpec::Udp {
        return Err(InvalidSettings::at(
            "proxy_protocol_from",
            "a udp listener reads no PROXY protocol header",
        ));
    }
    check_networks("proxy_protocol_from", networks)?;
    let Some(real_ip) = &listener.real_ip else { return Ok(()) };
    if !matches!(listener.protocol, ListenerProtocolSpec::Http | ListenerProtocolSpec::Https) {
        return Err(InvalidSettings::at("real_ip", "only requests have fields: use it with http or https"));
    }
    check_networks("real_ip.from", &real_ip.from)
}

fn check_networks(path: &str, networks: &[String]) -> Result<(), InvalidSettings> {
    for (at, network) in networks.iter().enumerate() {
        if IpSet::parse([network.as_str()]).is_err() {
            let message = format!("{network:?} is no address or network, such as 10.0.0.0/8");
            return Err(InvalidSettings::at(format!("{path}[{at}]"), message));
        }
    }
    Ok(())
}

resource_type!(ListenerSpec, Kind::Listeners, settle = settle);
