//! The client address from forwarding fields: its source, and the peers that are trusted to set it. Used by
//! the plugin `real-ip` and by the node settings.

use std::net::{IpAddr, SocketAddr};

use yumen_base::IpSet;
use yumen_http::{Fields, KnownField};

use crate::{Exchange, Var};

/// Settings of the search for the client address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RealIpFinder {
    source: RealIpSource,
    /// Trusted peers; `None` trusts all.
    trusted: Option<IpSet>,
    /// Whether trusted addresses in a list are skipped.
    recursive: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RealIpSource {
    /// `X-Forwarded-For`: each proxy appends the address of its peer.
    ForwardedFor,
    /// The `for` parameters of `Forwarded` (RFC 7239), also a list.
    Forwarded,
    /// A variable with one address.
    Var(Var),
}

impl RealIpFinder {
    /// A finder for the variable `source`: `http_x_real_ip`, `arg_ip`, `cookie_ip`. `http_x_forwarded_for`
    /// and `http_forwarded` are lists, in which the last address counts or, with `recursive`, the last
    /// untrusted one.
    pub fn new(source: &str, trusted: Option<IpSet>, recursive: bool) -> RealIpFinder {
        let source = match Var::parse(source) {
            Var::RequestField(name) if &*name == "x-forwarded-for" => RealIpSource::ForwardedFor,
            Var::RequestField(name) if &*name == "forwarded" => RealIpSource::Forwarded,
            var => RealIpSource::Var(var),
        };
        RealIpFinder { source, trusted, recursive }
    }

    /// Sets the client address of the exchange if the peer is trusted and the source has a valid address.
    pub fn apply(&self, ex: &mut Exchange<'_>) {
        if self.trusted.as_ref().is_some_and(|trusted| !trusted.contains(ex.client.ip)) {
            return;
        }
        if let Some((ip, port)) = self.find(ex) {
            // Rules for IPv4 addresses match IPv4-mapped ones too.
            ex.client.ip = ip.to_canonical();
            ex.client.port = port;
        }
    }

    fn find(&self, ex: &Exchange<'_>) -> Option<(IpAddr, u16)> {
        match &self.source {
            // NGINX walks a list in any field (`real_ip_header`).
            RealIpSource::Var(var) if self.recursive => {
                self.walk(var.get(ex)?.split(|byte| *byte == b',').map(parse).collect())
            }
            RealIpSource::Var(var) => parse(&var.get(ex)?),
            RealIpSource::ForwardedFor => {
                let lines = ex.request.fields.all_known(KnownField::XForwardedFor);
                let elements = lines.flat_map(|line| line.split(|byte| *byte == b','));
                // Empty list elements are ignored (RFC 9110 §5.6.1.2).
                let addresses = elements.filter(|element| !element.trim_ascii().is_empty());
                self.walk(addresses.map(parse).collect())
            }
            RealIpSource::Forwarded => self.walk(forwarded_for(&ex.request.fields)),
        }
    }

    /// The last address that counts. A malformed entry ends the search without an address.
    fn walk(&self, mut hops: Vec<Option<(IpAddr, u16)>>) -> Option<(IpAddr, u16)> {
        let trusted = self.trusted.as_ref().filter(|_| self.recursive);
        let mut last = hops.pop()?;
        if let Some(trusted) = trusted {
            while last.is_some_and(|(ip, _)| trusted.contains(ip)) {
                match hops.pop() {
                    Some(hop) => last = hop,
                    // If all addresses are trusted, the first one counts, as in NGINX (`real_ip_recursive`).
                    None => break,
                }
            }
        }
        last
    }
}

/// Parses an address with an optional port. A port of 0 is invalid.
fn parse(text: &[u8]) -> Option<(IpAddr, u16)> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if let Ok(ip) = text.parse() {
        return Some((ip, 0));
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return (socket.port() != 0).then(|| (socket.ip(), socket.port()));
    }
    // `Forwarded` has IPv6 addresses in brackets, also without a port (RFC 7239 §6).
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    Some((IpAddr::V6(inner.parse().ok()?), 0))
}

/// The `for` of every element of `Forwarded`; `None` for an element without an address.
fn forwarded_for(fields: &Fields) -> Vec<Option<(IpAddr, u16)>> {
    let elements = fields.all_known(KnownField::Forwarded).flat_map(|line| split(line, b','));
    elements.map(|element| split(element, b';').into_iter().find_map(for_of)?).collect()
}

/// The address of a `for` parameter; `None` for another parameter.
fn for_of(pair: &[u8]) -> Option<Option<(IpAddr, u16)>> {
    let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
    // Names of parameters ignore case (RFC 7239 §4).
    if !name.trim_ascii().eq_ignore_ascii_case(b"for") {
        return None;
    }
    let value = value[1..].trim_ascii();
    // An address with a colon is a quoted string (RFC 7239 §6).
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(parse(inner.unwrap_or(value)))
}

/// Splits at separators outside of quotes, from the end. The last elements come from proxies and are
/// well-formed. A client may leave a quote open before them; from the beginning, it would swallow those
/// elements.
fn split(text: &[u8], separator: u8) -> Vec<&[u8]> {
    let (mut quoted, mut end, mut parts) = (false, text.len(), Vec::new());
    for (at, byte) in text.iter().enumerate().rev() {
        if *byte == b'"' && !is_escaped(&text[..at]) {
            quoted = !quoted;
        } else if *byte == separator && !quoted {
            parts.push(&text[at + 1..end]);
            end = at;
        }
    }
    parts.push(&text[..end]);
    parts.reverse();
    parts
}

/// Whether the next character is escaped. Backslashes only occur in quoted strings, where each escapes the
/// next character (RFC 9110 §5.6.4).
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests;
