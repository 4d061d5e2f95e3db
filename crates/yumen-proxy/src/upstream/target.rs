//! One endpoint of an upstream, with the parameters of connections to it.

use yumen_snapshot::protection::{EndpointPermit, LimiterFull};
use yumen_snapshot::upstream::KeepaliveLimits;
use yumen_snapshot::{Endpoint, Upstream, UpstreamProtection};

use crate::fault::FaultKind;
use crate::tls::{TlsName, UpstreamHandshake};
use crate::upstream::UpstreamClient;
use crate::upstream::dial::EndpointDial;
use crate::upstream::pool::PoolKey;

/// One endpoint of an upstream, with the protocols of connections to it.
pub(crate) struct EndpointTarget<'a> {
    pub(crate) upstream: &'a Upstream,
    /// The index of the endpoint in the upstream.
    pub(crate) index: usize,
    /// The server name for TLS; `None` for cleartext.
    pub(crate) tls_name: Option<TlsName<'a>>,
    pub(crate) is_http2: bool,
    /// The limits that count the connection, if any do.
    pub(crate) protection: Option<&'a UpstreamProtection>,
    /// The time to connect, in milliseconds; 0 for no limit.
    pub(crate) connect_ms: u64,
}

impl<'a> EndpointTarget<'a> {
    /// An endpoint with the settings of its upstream, for requests of the gateway itself.
    pub(crate) fn of_upstream(upstream: &'a Upstream, index: usize) -> EndpointTarget<'a> {
        let endpoint_name = || {
            let own = TlsName { host: upstream.endpoints[index].host.as_bytes(), is_explicit: false };
            TlsName::of_settings(upstream).unwrap_or(own)
        };
        EndpointTarget {
            upstream,
            index,
            tls_name: upstream.protocol.scheme.is_tls().then(endpoint_name),
            is_http2: upstream.protocol.http2,
            protection: None,
            connect_ms: upstream.timeouts.connect_ms,
        }
    }

    pub(crate) fn endpoint(&self) -> &'a Endpoint {
        &self.upstream.endpoints[self.index]
    }

    pub(crate) fn keepalive(&self) -> &'a KeepaliveLimits {
        &self.upstream.keepalive
    }

    /// The key of connections that may carry the request.
    #[inline]
    pub(crate) fn pool_key(&self) -> PoolKey {
        PoolKey::new(self.endpoint(), self.tls_name.map(|name| name.host))
    }

    /// Prepares a new connection that `opening` begins, before any TLS.
    pub(crate) fn dial(&self, opening: Vec<u8>) -> Result<EndpointDial, FaultKind> {
        let handshake = self
            .tls_name
            .map(|name| UpstreamHandshake::new(self.upstream, self.endpoint(), name, self.is_http2));
        Ok(EndpointDial {
            address: self.endpoint().addr,
            opening,
            // Without TLS, requests name their server themselves.
            tunnel: self.upstream.protocol.tunnel.clone().filter(|_| self.tls_name.is_some()),
            handshake: handshake.transpose()?,
            timeout_ms: self.connect_ms,
            endpoint: self.endpoint().state.clone(),
        })
    }

    /// Prepares a new connection that the pools may keep. `permit` receives the right to it where connections
    /// are limited and admission has given none.
    pub(super) fn dial_for_pool(
        &self,
        client: &UpstreamClient,
        permit: &mut Option<EndpointPermit>,
    ) -> Result<EndpointDial, FaultKind> {
        let dial = self.dial(Vec::new())?;
        if permit.is_none()
            && let Some(protection) = self.protection
        {
            *permit = protection.connect(self.index).map_err(|LimiterFull| FaultKind::UpstreamFull)?;
        }
        client.counters.upstream.connects.add(1);
        client.connected_endpoints.connected(self.pool_key().endpoint(), &self.endpoint().state);
        Ok(dial)
    }
}
