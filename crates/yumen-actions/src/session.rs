//! Session persistence: the sealed value that names the endpoint of a session, and the cookie or field that carries it.
//!
//! The value is encrypted, so a client can neither read addresses of endpoints nor choose one. Independent of how an
//! endpoint is picked.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use yumen_config::resource::{CookieAttributes, SameSiteSpec, SessionKind, SessionSpec};
use yumen_http::RequestHead;

/// Bytes of a session key.
pub const SESSION_KEY_BYTES: usize = 32;

/// Bytes of a ticket: version, backend, address, port, time of issue.
const TICKET_BYTES: usize = 1 + 8 + 16 + 2 + 8;

/// Bytes of the authentication tag of the cipher.
const TAG_BYTES: usize = 16;

/// The version of the format.
const VERSION: u8 = 1;

/// The content of a sealed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionTicket {
    /// The name of the backend, see `WeightedTarget` of the snapshot.
    pub backend: u64,
    /// The address of the endpoint.
    pub address: SocketAddr,
    /// The time of issue, in seconds since the Unix epoch.
    pub issued_s: u64,
}

impl SessionTicket {
    fn encode(&self) -> [u8; TICKET_BYTES] {
        let ip = match self.address.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let mut out = [VERSION; TICKET_BYTES];
        out[1..9].copy_from_slice(&self.backend.to_be_bytes());
        out[9..25].copy_from_slice(&ip.octets());
        out[25..27].copy_from_slice(&self.address.port().to_be_bytes());
        out[27..].copy_from_slice(&self.issued_s.to_be_bytes());
        out
    }

    fn decode(bytes: &[u8]) -> Option<SessionTicket> {
        let (version, rest) = bytes.split_first()?;
        let (backend, rest) = rest.split_first_chunk()?;
        let (ip, rest) = rest.split_first_chunk::<16>()?;
        let (port, issued_s) = rest.split_first_chunk()?;
        let ip = Ipv6Addr::from(*ip).to_canonical();
        (*version == VERSION).then_some(SessionTicket {
            backend: u64::from_be_bytes(*backend),
            address: SocketAddr::new(ip, u16::from_be_bytes(*port)),
            issued_s: u64::from_be_bytes(issued_s.try_into().ok()?),
        })
    }

    /// Whether the session has ended at `now_s` by its longest life.
    pub fn is_over(&self, spec: &SessionSpec, now_s: u64) -> bool {
        spec.max_age_s.is_some_and(|max_age_s| now_s.saturating_sub(self.issued_s) >= max_age_s)
    }
}

/// The keys of sealed values. Gateways with the same keys accept each other's sessions.
#[derive(Default)]
pub struct SessionKeys(ArcSwap<Vec<RandomizedNonceKey>>);

impl std::fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SessionKeys({} keys)", self.0.load().len())
    }
}

impl SessionKeys {
    /// A set of keys: the first seals, all open.
    pub fn new(keys: &[[u8; SESSION_KEY_BYTES]]) -> SessionKeys {
        let set = SessionKeys(ArcSwap::default());
        set.replace(keys);
        set
    }

    /// Replaces the keys. Sessions of keys that are gone begin anew.
    pub fn replace(&self, keys: &[[u8; SESSION_KEY_BYTES]]) {
        let cipher = |key: &[u8; SESSION_KEY_BYTES]| {
            RandomizedNonceKey::new(&AES_256_GCM, key).expect("the length of this cipher's keys")
        };
        self.0.store(Arc::new(keys.iter().map(cipher).collect()));
    }

    /// Seals a ticket for the session of this name; `None` without a key.
    pub fn seal(&self, name: &str, ticket: &SessionTicket) -> Option<String> {
        let keys = self.0.load();
        let mut sealed = ticket.encode().to_vec();
        // The name is authenticated: the value of another session is no value of this one.
        let nonce = keys.first()?.seal_in_place_append_tag(Aad::from(name.as_bytes()), &mut sealed).ok()?;
        let bytes = [nonce.as_ref().as_slice(), &sealed].concat();
        Some(BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Opens a value of a client; `None` if no key has sealed it.
    pub fn open(&self, name: &str, value: &[u8]) -> Option<SessionTicket> {
        // Checked first: a client may send values of any length.
        if value.len() > (NONCE_LEN + TICKET_BYTES + TAG_BYTES).div_ceil(3) * 4 {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(value).ok()?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.0.load();
        keys.iter().find_map(|key| {
            let mut sealed = sealed.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let ticket = key.open_in_place(nonce, Aad::from(name.as_bytes()), &mut sealed).ok()?;
            SessionTicket::decode(ticket)
        })
    }
}

/// The value of a session in a request.
pub fn received_value<'r>(spec: &SessionSpec, request: &'r RequestHead) -> Option<&'r [u8]> {
    match spec.kind {
        SessionKind::Cookie => request.cookie(spec.name.as_bytes()),
        SessionKind::Header => request.fields.get(&spec.name),
    }
}

/// Name and value of the response field that starts a session. `is_secure` is whether the client uses TLS.
pub fn response_field<'s>(spec: &'s SessionSpec, value: &str, is_secure: bool) -> (&'s str, String) {
    match spec.kind {
        SessionKind::Cookie => ("Set-Cookie", cookie(spec, value, is_secure)),
        SessionKind::Header => (&spec.name, value.to_owned()),
    }
}

fn cookie(spec: &SessionSpec, value: &str, is_secure: bool) -> String {
    let attributes = spec.cookie.as_ref();
    let path = attributes.and_then(|of| of.path.as_deref()).unwrap_or("/");
    let mut out = format!("{}={value}; Path={path}", spec.name);
    if let Some(domain) = attributes.and_then(|of| of.domain.as_deref()) {
        out.push_str("; Domain=");
        out.push_str(domain);
    }
    if let Some(max_age_s) = spec.max_age_s.filter(|_| spec.is_permanent) {
        out.push_str(&format!("; Max-Age={max_age_s}"));
    }
    if is_secure || attributes.is_some_and(|of: &CookieAttributes| of.secure) {
        out.push_str("; Secure");
    }
    if attributes.is_none_or(|of| of.http_only) {
        out.push_str("; HttpOnly");
    }
    match attributes.and_then(|of| of.same_site) {
        Some(SameSiteSpec::Strict) => out.push_str("; SameSite=Strict"),
        Some(SameSiteSpec::Lax) => out.push_str("; SameSite=Lax"),
        Some(SameSiteSpec::None | SameSiteSpec::NoneIfSupported) => out.push_str("; SameSite=None"),
        None => {}
    }
    out
}

#[cfg(test)]
mod tests;
