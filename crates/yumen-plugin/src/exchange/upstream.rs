//! The upstream side of an exchange: the choices of plugins before forwarding, and the endpoint of the attempt.

use std::net::SocketAddr;
use std::sync::Arc;

use yumen_http::KnownField;

use crate::UpstreamSlot;

/// Choices of plugins about forwarding, made in the rewrite and access phases. They replace those of the route.
#[derive(Debug, Clone, Default)]
pub struct UpstreamSelection {
    /// The `Host` field to send; `None` applies `pass_host` of the upstream.
    pub host: Option<Box<[u8]>>,
    /// `http` or `https`; `None` applies the scheme of the upstream.
    pub scheme: Option<&'static str>,
    /// Slot of the upstream; `None` applies the upstream of the route.
    pub slot: Option<u32>,
    /// Deadline of the exchange, in milliseconds of the monotonic clock; 0 is none. After the access phase it
    /// only gets earlier.
    pub deadline_ms: u64,
    /// Forwarding fields that are not added to the request.
    pub omitted: OmittedForwarding,
    /// Targets of copies of the request. A copy includes the body if that is buffered.
    pub mirrors: Vec<MirrorTarget>,
}

/// Forwarding fields that the gateway does not add to a request, because the settings of a plugin remove them.
///
/// `X-Forwarded-For` is not among them: as in APISIX, its removal discards the addresses of other proxies, and the
/// address of the client is still forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OmittedForwarding(u8);

impl OmittedForwarding {
    const FIELDS: [KnownField; 4] = [
        KnownField::XRealIp,
        KnownField::XForwardedProto,
        KnownField::XForwardedHost,
        KnownField::XForwardedPort,
    ];

    /// Omits the field `name`, if it is one of these fields.
    pub fn omit(&mut self, name: &str) {
        let known = KnownField::of(name.as_bytes());
        if let Some(at) = Self::FIELDS.iter().position(|field| *field == known) {
            self.0 |= 1 << at;
        }
    }

    /// Omits the fields of `other` as well.
    pub fn extend(&mut self, other: OmittedForwarding) {
        self.0 |= other.0;
    }

    /// Whether no field is omitted.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, known: KnownField) -> bool {
        Self::FIELDS.iter().position(|field| *field == known).is_some_and(|at| self.0 >> at & 1 == 1)
    }
}

/// Target of a copy of the request, whose response is discarded.
#[derive(Debug, Clone)]
pub struct MirrorTarget {
    /// The upstream that receives the copy.
    pub upstream: UpstreamSlot,
    /// A path instead of the path of the request.
    pub path: Option<Arc<str>>,
    /// Whether `path` is a prefix of the path of the request and does not replace it.
    pub is_prefix: bool,
}

/// The endpoint of the current attempt. Written by the proxy; empty before the first attempt.
#[derive(Debug, Clone, Default)]
pub struct SelectedEndpoint<'s> {
    /// The address of the endpoint.
    pub address: Option<SocketAddr>,
    /// The host of the endpoint as configured, before name resolution; empty for streams.
    pub host: &'s str,
    /// The status that the endpoint sent; 0 before.
    pub status: u16,
}
