//! Session persistence: the sealed value that names the endpoint of a session, and the cookie or field that carries it.
//!
//! The value is encrypted, so a client can neither read addresses of endpoints nor choose one. Independent of how an
//! endpoint is picked.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

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

/// The content of the value in mode `hash`: it selects a backend and an endpoint, and names neither.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashedSession {
    /// The value that selects an endpoint.
    pub key: u64,
    /// The name of the backend, see `WeightedTarget` of the snapshot.
    pub backend: u64,
}

impl HashedSession {
    /// The value.
    pub fn encode(self) -> String {
        format!("{:016x}.{:016x}", self.key, self.backend)
    }

    /// Reads a value of a client. Any key is as good as another, so the value is not sealed.
    pub fn decode(value: &[u8]) -> Option<HashedSession> {
        let (key, backend) = std::str::from_utf8(value).ok()?.split_once('.')?;
        let number = |text: &str| {
            let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            is_hex.then(|| u64::from_str_radix(text, 16).ok())?
        };
        Some(HashedSession { key: number(key)?, backend: number(backend)? })
    }
}

/// The client of a session cookie.
#[derive(Debug, Clone, Copy, Default)]
pub struct CookieClient<'c> {
    /// Whether the client uses TLS.
    pub is_secure: bool,
    /// The field `User-Agent`.
    pub agent: &'c [u8],
    /// The time of the response, in seconds since the Unix epoch.
    pub now_s: u64,
}

/// The value of a session in a request.
pub fn received_value<'r>(spec: &SessionSpec, request: &'r RequestHead) -> Option<&'r [u8]> {
    match spec.kind {
        SessionKind::Cookie => request.cookie(spec.name.as_bytes()),
        SessionKind::Header => request.fields.get(&spec.name),
    }
}

/// Name and value of the response field that starts a session.
pub fn response_field<'s>(spec: &'s SessionSpec, value: &str, client: CookieClient<'_>) -> (&'s str, String) {
    match spec.kind {
        SessionKind::Cookie => ("Set-Cookie", cookie(spec, value, client)),
        SessionKind::Header => (&spec.name, value.to_owned()),
    }
}

fn cookie(spec: &SessionSpec, value: &str, client: CookieClient<'_>) -> String {
    let attributes = spec.cookie.as_ref();
    let path = attributes.and_then(|of| of.path.as_deref()).unwrap_or("/");
    let mut out = format!("{}={value}; Path={path}", spec.name);
    if let Some(domain) = attributes.and_then(|of| of.domain.as_deref()) {
        out.push_str("; Domain=");
        out.push_str(domain);
    }
    if let Some(expires_s) = attributes.and_then(|of| of.expires_s) {
        out.push_str("; Expires=");
        // The last second that the format can express.
        let at_s = client.now_s.saturating_add(expires_s).min(253_402_300_799);
        out.push_str(&httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at_s)));
    }
    if let Some(max_age_s) = spec.max_age_s.filter(|_| spec.is_permanent) {
        out.push_str(&format!("; Max-Age={max_age_s}"));
    }
    if client.is_secure || attributes.is_some_and(|of: &CookieAttributes| of.secure) {
        out.push_str("; Secure");
    }
    if attributes.is_none_or(|of| of.http_only) {
        out.push_str("; HttpOnly");
    }
    match attributes.and_then(|of| of.same_site) {
        Some(SameSiteSpec::Strict) => out.push_str("; SameSite=Strict"),
        Some(SameSiteSpec::Lax) => out.push_str("; SameSite=Lax"),
        Some(SameSiteSpec::None) => out.push_str("; SameSite=None"),
        Some(SameSiteSpec::NoneIfSupported) if accepts_none(client.agent) => out.push_str("; SameSite=None"),
        Some(SameSiteSpec::NoneIfSupported) | None => {}
    }
    out
}

/// Whether a browser accepts `SameSite=None`: Chrome 51 to 66, Safari of macOS 10.14 and browsers of iOS 12 drop such a
/// cookie or treat it as strict (draft-west-cookie-incrementalism).
fn accepts_none(agent: &[u8]) -> bool {
    let has = |text: &str| agent.windows(text.len()).any(|part| part == text.as_bytes());
    let is_old_chrome = agent.windows(10).any(|part| {
        part.starts_with(b"Chrome/")
            && matches!(part[7..], [b'5' | b'6', digit, b'.'] if digit.is_ascii_digit())
    });
    let is_ios_12 = has("CPU iPhone OS 12_") || has("CPU OS 12_");
    let is_old_safari = has("Mac OS X 10_14") && has("Version/") && has("Safari") && !has("Chrome");
    !(is_old_chrome || is_ios_12 || is_old_safari)
}

#[cfg(test)]
mod tests;
