//! The client's own address, as proxies before this gateway tell it: where it is said, and how far that is
//! believed.
//!
//! Knows nothing of plugins; the node's settings use it too.

use std::net::{IpAddr, SocketAddr};

use yumen_base::IpSet;
use yumen_http::{Fields, KnownField};

use crate::{Exchange, Var};

/// Where a client's address comes from.
#[derive(Debug, Clone)]
pub struct RealIpFinder {
    source: RealIpSource,
    /// Only these peers are believed; `None` is all.
    trusted: Option<IpSet>,
    /// Whether trusted addresses in a list are stepped over.
    recursive: bool,
}

#[derive(Debug, Clone)]
enum RealIpSource {
    /// `X-Forwarded-For`: each proxy appends whom it heard.
    ForwardedFor,
    /// The `for` of `Forwarded` (RFC 7239), which is such a list too.
    Forwarded,
    /// A variable with one address.
    Var(Var),
}

impl RealIpFinder {
    /// From the variable `source`: `http_x_real_ip`, `arg_ip`, `cookie_ip`. `http_x_forwarded_for` and
    /// `http_forwarded` are lists, whose last address counts; with `recursive`, the last that is not trusted.
    pub fn new(source: &str, trusted: Option<IpSet>, recursive: bool) -> RealIpFinder {
        let source = match Var::parse(source) {
            Var::RequestField(name) if &*name == "x-forwarded-for" => RealIpSource::ForwardedFor,
            Var::RequestField(name) if &*name == "forwarded" => RealIpSource::Forwarded,
            var => RealIpSource::Var(var),
        };
        RealIpFinder { source, trusted, recursive }
    }

    /// Makes the address that is said the client's, if whoever says it is believed and it is one.
    pub fn apply(&self, ex: &mut Exchange<'_>) {
        if self.trusted.as_ref().is_some_and(|trusted| !trusted.contains(ex.client.ip)) {
            return;
        }
        if let Some((ip, port)) = self.find(ex) {
            ex.client.ip = ip.to_canonical();
            ex.client.port = port;
        }
    }

    fn find(&self, ex: &Exchange<'_>) -> Option<(IpAddr, u16)> {
        match &self.source {
            RealIpSource::Var(var) => parse(&var.get(ex)?),
            RealIpSource::ForwardedFor => {
                let lines = ex.request.fields.all_known(KnownField::XForwardedFor);
                let elements = lines.flat_map(|line| line.split(|byte| *byte == b','));
                // Empty elements are none (RFC 9110 §5.6.1.2).
                let told = elements.filter(|element| !element.trim_ascii().is_empty());
                self.walk(told.map(parse).collect())
            }
            RealIpSource::Forwarded => self.walk(forwarded_for(&ex.request.fields)),
        }
    }

    /// The last of these that counts. An entry that is no address is nobody's word: it ends the search.
    fn walk(&self, mut hops: Vec<Option<(IpAddr, u16)>>) -> Option<(IpAddr, u16)> {
        let trusted = self.trusted.as_ref().filter(|_| self.recursive);
        let mut last = hops.pop()?;
        if let Some(trusted) = trusted {
            while last.is_some_and(|(ip, _)| trusted.contains(ip)) {
                match hops.pop() {
                    Some(hop) => last = hop,
                    None => break,
                }
            }
        }
        last
    }
}

/// An address, with a port if one is there; a port of 0 is none.
fn parse(text: &[u8]) -> Option<(IpAddr, u16)> {
    let text = std::str::from_utf8(text).ok()?.trim();
    if let Ok(ip) = text.parse() {
        return Some((ip, 0));
    }
    if let Ok(socket) = text.parse::<SocketAddr>() {
        return (socket.port() != 0).then(|| (socket.ip(), socket.port()));
    }
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    Some((IpAddr::V6(inner.parse().ok()?), 0))
}

/// The `for` of every element of `Forwarded`; `None` for an element that has none or hides it.
fn forwarded_for(fields: &Fields) -> Vec<Option<(IpAddr, u16)>> {
    let elements = fields.all_known(KnownField::Forwarded).flat_map(|line| split(line, b','));
    elements.map(|element| split(element, b';').into_iter().find_map(for_of)?).collect()
}

/// What `for` says in a pair, if this is one.
fn for_of(pair: &[u8]) -> Option<Option<(IpAddr, u16)>> {
    let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
    if !name.trim_ascii().eq_ignore_ascii_case(b"for") {
        return None;
    }
    let value = value[1..].trim_ascii();
    let inner = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(parse(inner.unwrap_or(value)))
}

/// The parts between separators that stand outside of quotes. Read from the end: there stands what proxies have
/// appended, which is well-formed. A client can leave a quote open before it, and read from the beginning, that would
/// take the proxies' words in; from the end, it is the client's own that come apart.
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

/// Whether what follows this is escaped by it. Backslashes stand only in quotes, and each escapes what follows it
/// (RFC 9110 §5.6.4).
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

#[cfg(test)]
mod tests;
