//! Addresses on the command line of `yumen proxy`.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use crate::node::listen_address;

/// Address of a client listener.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProxyListenAddress {
    pub(super) address: SocketAddr,
    pub(super) tls: bool,
}

impl FromStr for ProxyListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<ProxyListenAddress, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let tls = match scheme {
            "http" => false,
            "https" => true,
            _ => return Err(format!("a listener has the scheme http or https, not {scheme}")),
        };
        let address =
            listen_address(rest.strip_suffix('/').unwrap_or(rest)).map_err(|message| match tls {
                true => format!("{message} after https://"),
                false => message,
            })?;
        Ok(ProxyListenAddress { address, tls })
    }
}

/// Protocol of the targets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum TargetScheme {
    Http,
    Https,
    Grpc,
    Grpcs,
}

impl TargetScheme {
    const ALL: [TargetScheme; 4] =
        [TargetScheme::Http, TargetScheme::Https, TargetScheme::Grpc, TargetScheme::Grpcs];

    pub(super) fn name(self) -> &'static str {
        match self {
            TargetScheme::Http => "http",
            TargetScheme::Https => "https",
            TargetScheme::Grpc => "grpc",
            TargetScheme::Grpcs => "grpcs",
        }
    }

    pub(super) fn has_tls(self) -> bool {
        matches!(self, TargetScheme::Https | TargetScheme::Grpcs)
    }

    fn default_port(self) -> u16 {
        if self.has_tls() { 443 } else { 80 }
    }
}

/// Target of forwarded requests.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProxyTarget {
    pub(super) scheme: TargetScheme,
    /// Name or address; an IPv6 address is in brackets.
    pub(super) host: String,
    pub(super) port: u16,
}

impl ProxyTarget {
    /// Whether the host is a name and not an address.
    pub(super) fn is_name(&self) -> bool {
        self.host.trim_matches(['[', ']']).parse::<IpAddr>().is_err()
    }
}

impl FromStr for ProxyTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<ProxyTarget, String> {
        let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
        let scheme = TargetScheme::ALL.into_iter().find(|known| known.name() == scheme).ok_or_else(|| {
            format!("the scheme {scheme} is unknown: write http, https, grpc or grpcs before ://")
        })?;
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err("a target has no path: proxy-rewrite in a resource file changes paths (see --print)"
                .to_owned());
        }
        if authority.contains('@') {
            return Err("a target has no user: set the field Authorization in a resource file (see --print)"
                .to_owned());
        }
        let (host, port) = split_port(authority)?;
        let port = match port {
            None => scheme.default_port(),
            Some(port) => port.parse().ok().filter(|port| *port > 0).ok_or_else(|| {
                format!("{port} is not a port: write a number from 1 to 65535 after the last colon")
            })?,
        };
        Ok(ProxyTarget { scheme, host: checked_host(host)?, port })
    }
}

/// Host and port; the brackets of an IPv6 address stay.
fn split_port(authority: &str) -> Result<(&str, Option<&str>), String> {
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or("the bracket of the IPv6 address is not closed")?;
        let (host, rest) = authority.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err("write [IPv6 address]:port".to_owned()),
        };
    }
    match authority.matches(':').count() {
        0 if !authority.is_empty() && authority.bytes().all(|byte| byte.is_ascii_digit()) => {
            Err(format!("{authority} is only a number: write :{authority} or 127.0.0.1:{authority}"))
        }
        0 => Ok((authority, None)),
        1 => Ok(authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port)))),
        _ => Err("write an IPv6 address in brackets: [::1]:9000".to_owned()),
    }
}

fn checked_host(host: &str) -> Result<String, String> {
    if host.is_empty() {
        return Ok("127.0.0.1".to_owned());
    }
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return match address.parse::<std::net::Ipv6Addr>() {
            Ok(_) => Ok(host.to_owned()),
            Err(_) => Err(format!("{address} is not an IPv6 address")),
        };
    }
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    match host.bytes().all(is_allowed) {
        true => Ok(host.to_ascii_lowercase()),
        false => Err(format!("{host} is not a host name: write HOST:PORT or https://HOST")),
    }
}

impl fmt::Display for ProxyTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme.name(), self.host)?;
        match self.port == self.scheme.default_port() {
            true => Ok(()),
            false => write!(f, ":{}", self.port),
        }
    }
}
