//! Discovery by DNS: SRV records with their targets, or address records.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::task::JoinSet;
use yumen_config::node::{self, DnsDiscovery, DnsRecord};
use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::DiscoveryQuery;

use super::{DiscoveryAnswer, DiscoveryArgs, bracketed};
use crate::endpoints::dns;

/// Source of `discovery_type: dns`.
pub(super) struct DnsSource {
    resolver: TokioResolver,
    hosts_file: dns::HostsFile,
    settings: node::DnsConfig,
    order: Vec<DnsRecord>,
}

/// Nodes and their TTL in seconds, if known; `None` without records of the type.
type Found = Option<(Vec<UpstreamNode>, Option<u32>)>;

impl DnsSource {
    pub(super) fn new(settings: &DnsDiscovery, general: &node::DnsConfig) -> Result<DnsSource, String> {
        let mut resolver_settings = general.clone();
        if !settings.servers.is_empty() {
            resolver_settings.servers.clone_from(&settings.servers);
        }
        Ok(DnsSource {
            resolver: dns::resolver(&resolver_settings)?,
            hosts_file: dns::HostsFile::default(),
            settings: resolver_settings,
            order: settings.order.clone(),
        })
    }

    pub(super) async fn discover(&self, service: &DiscoveryQuery) -> Result<DiscoveryAnswer, String> {
        DiscoveryArgs::of(service, &[])?;
        // As in APISIX, an address in place of a name needs no query.
        if let Some((ip, port)) = address(&service.name) {
            let nodes = vec![node(ip, port, 1, 0)];
            return Ok(DiscoveryAnswer { nodes, pause: dns::clamp(&self.settings, None) });
        }
        let (host, port) = match service.name.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| format!("`{port}` is no port"))?),
            // Port 0 is filled in by SRV records or by the default of the scheme.
            None => (&*service.name, 0),
        };
        let name = dns::query_name(host).map_err(|_| format!("`{host}` is no host name"))?;
        if let Some(nodes) = self.in_hosts_file(&name, port) {
            return Ok(DiscoveryAnswer { nodes, pause: dns::clamp(&self.settings, None) });
        }
        for record in &self.order {
            let found = match record {
                DnsRecord::Srv => self.services(&name, port).await?,
                DnsRecord::A => self.addresses(&name, port, RecordType::A).await?,
                DnsRecord::Aaaa => self.addresses(&name, port, RecordType::AAAA).await?,
                // The resolver follows CNAME in every lookup, and no record type of an earlier lookup is
                // remembered.
                DnsRecord::Cname | DnsRecord::Last => None,
            };
            if let Some((nodes, ttl_s)) = found {
                let ttl = ttl_s.map(|ttl_s| Duration::from_secs(ttl_s.into()));
                return Ok(DiscoveryAnswer { nodes, pause: dns::clamp(&self.settings, ttl) });
            }
        }
        Ok(DiscoveryAnswer { nodes: Vec::new(), pause: dns::clamp(&self.settings, None) })
    }

    /// Nodes from the hosts file, which takes precedence over name servers.
    fn in_hosts_file(&self, name: &Name, port: u16) -> Option<Vec<UpstreamNode>> {
        let known = self.hosts_file.find(name)?;
        let of = |record: &DnsRecord| match record {
            DnsRecord::A => &known.v4[..],
            DnsRecord::Aaaa => &known.v6[..],
            _ => &[],
        };
        let ips = self.order.iter().map(of).find(|ips| !ips.is_empty())?;
        Some(ips.iter().map(|ip| node(*ip, port, 1, 0)).collect())
    }

    async fn addresses(&self, name: &Name, port: u16, family: RecordType) -> Result<Found, String> {
        let found = addresses(&self.resolver, name.clone(), family).await?;
        let node = |ip: IpAddr| node(ip, port, 1, 0);
        Ok(found.map(|(all, ttl_s)| (all.into_iter().map(node).collect(), ttl_s)))
    }

    /// Nodes from SRV records. Targets without an address are left out as long as others have one (RFC 2782).
    /// A target whose lookup fails makes the whole result an error. A server that rejects SRV queries has no
    /// SRV records.
    async fn services(&self, name: &Name, port: u16) -> Result<Found, String> {
        let lookup = match self.resolver.lookup(name.clone(), RecordType::SRV).await {
            Ok(lookup) => lookup,
            Err(error) if error.is_no_records_found() || is_unsupported(&error) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        let mut ttl_s: Option<u32> = None;
        let mut targets = JoinSet::new();
        for record in lookup.answers() {
            let RData::SRV(srv) = &record.data else { continue };
            ttl_s = [ttl_s, Some(record.ttl)].into_iter().flatten().min();
            if srv.target.is_root() {
                // A root target means that the service is decidedly not available (RFC 2782).
                return Ok(Some((Vec::new(), ttl_s)));
            }
            let (srv, resolver) = (srv.clone(), self.resolver.clone());
            targets.spawn(async move {
                // AAAA only for targets without A records (decision 12).
                let found = match addresses(&resolver, srv.target.clone(), RecordType::A).await {
                    Ok(None) => addresses(&resolver, srv.target.clone(), RecordType::AAAA).await,
                    found => found,
                };
                (srv, found)
            });
        }
        // Answers may consist of CNAME records alone.
        if targets.is_empty() {
            return Ok(None);
        }
        let (mut nodes, mut without) = (Vec::new(), None);
        while let Some(Ok((srv, found))) = targets.join_next().await {
            match found {
                Ok(Some((ips, holds_s))) => {
                    ttl_s = [ttl_s, holds_s].into_iter().flatten().min();
                    // A port in the name of the service takes precedence.
                    let port = if port > 0 { port } else { srv.port };
                    // SRV prefers the lowest priority, nodes the highest. SRV weight 0 is a small share, but
                    // node weight 0 is none.
                    let (weight, priority) = (u32::from(srv.weight.max(1)), -i32::from(srv.priority));
                    nodes.extend(ips.into_iter().map(|ip| node(ip, port, weight, priority)));
                }
                Ok(None) => without = Some(format!("{} has no address", srv.target)),
                Err(error) => return Err(format!("{}: {error}", srv.target)),
            }
        }
        match without {
            Some(error) if nodes.is_empty() => Err(error),
            _ => Ok(Some((nodes, ttl_s))),
        }
    }
}

/// Whether the server rejects queries of this type.
fn is_unsupported(error: &NetError) -> bool {
    use ResponseCode::{NotImp, Refused};
    matches!(error, NetError::Dns(DnsError::ResponseCode(Refused | NotImp)))
}

/// Parses a literal address, which needs no lookup, as in APISIX.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    let with_port = || text.parse().ok().map(|whole: SocketAddr| (whole.ip(), whole.port()));
    let inside = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let alone = inside.unwrap_or(text).parse().ok().filter(|ip: &IpAddr| inside.is_none() || ip.is_ipv6());
    alone.map(|ip| (ip, 0)).or_else(with_port)
}

fn node(ip: IpAddr, port: u16, weight: u32, priority: i32) -> UpstreamNode {
    UpstreamNode {
        host: bracketed(&ip.to_string()),
        port,
        weight,
        priority,
        excludes_local: false,
        metadata: None,
    }
}

/// Addresses of a name and their TTL in seconds; `None` without records of the family.
async fn addresses(
    resolver: &TokioResolver,
    name: Name,
    family: RecordType,
) -> Result<Option<(Vec<IpAddr>, Option<u32>)>, String> {
    let lookup = match resolver.lookup(name, family).await {
        Ok(lookup) => lookup,
        Err(error) if error.is_no_records_found() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let found: Vec<IpAddr> = lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect();
    let ttl_s = lookup.answers().iter().map(|record| record.ttl).min();
    Ok((!found.is_empty()).then_some((found, ttl_s)))
}
