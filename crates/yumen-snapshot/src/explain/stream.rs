//! Explains how a stream is handled, with the stream router that serves, but without serving it.
//!
//! The URL of the question describes the stream: `tcp://10.0.0.1:9100`, `udp://…`, or
//! `tls://db.example.com:9103`, where the host is the server name. Independent of sockets.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Serialize;
use yumen_base::ProblemLevel;
use yumen_config::resource::Question;
use yumen_config::{InvalidSettings, Kind};
use yumen_http::RequestHead;
use yumen_plugin::{ClientInfo, Exchange, StreamInfo, TlsInfo};

use super::arrival_listener::{ScopeSelection, certificate_choice, check_protocol, listener_of};
use super::origin::origin;
use super::simulation::RequestSimulation;
use super::{CertificateChoice, DryRunHost, ExplainContext, ExplainedStep, NEAREST_MAX, UpstreamView};
use crate::scope::ListenProtocol;
use crate::streams::{StreamLookup, StreamMatching, StreamMismatch, StreamRoute, StreamRouter};
use crate::{RouteTarget, Snapshot};

/// The handling of a stream, with reasons.
#[derive(Debug, Clone, Serialize)]
pub struct StreamExplanation {
    /// Revision of the snapshot.
    pub revision: u64,
    /// The stream as it was understood.
    pub stream: ExplainedStream,
    /// The scope of the stream; `None` on a listener of the node's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<ScopeSelection>,
    /// The certificate that the client gets if the listener terminates TLS.
    pub certificate: Option<CertificateChoice>,
    /// The matching route; without one the stream is closed.
    pub stream_route: Option<StreamChoice>,
    /// Routes that match too and lost; if none matches, the nearest.
    pub candidates: Vec<StreamCandidate>,
    /// The number of routes that are not listed one by one.
    pub others: usize,
    /// Why the route that the question names does not get the stream.
    pub why_not: Option<StreamCandidate>,
    /// Plugins in running order.
    pub plugins: Vec<ExplainedStep>,
    /// The upstream.
    pub upstream: Option<UpstreamView>,
    /// Further remarks.
    pub remarks: Vec<String>,
}

/// A stream as it was understood.
#[derive(Debug, Clone, Serialize)]
pub struct ExplainedStream {
    /// `tcp`, `tls` or `udp`.
    pub protocol: &'static str,
    /// Local address and port.
    pub server: SocketAddr,
    /// Client address.
    pub client_ip: IpAddr,
    /// Requested server name.
    pub sni: Option<String>,
}

/// The route that gets the stream.
#[derive(Debug, Clone, Serialize)]
pub struct StreamChoice {
    /// Id of the route.
    pub id: Box<str>,
    /// The Kubernetes object that a translated route comes from, such as `TCPRoute/shop/db`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Box<str>>,
    /// Id of its service.
    pub service_id: Box<str>,
    /// Its conditions, all of which match, such as `server_port 9100`.
    pub matched: Vec<String>,
}

/// A route that does not get the stream.
#[derive(Debug, Clone, Serialize)]
pub struct StreamCandidate {
    /// Id of the route, or the text of the question if there is no such route.
    pub stream_route: Box<str>,
    /// The first condition that does not match; `None` if all do.
    pub differs: Option<StreamMismatch>,
    /// The reason in words.
    pub why: String,
}

/// The stream that a question describes.
pub(super) struct SyntheticStream {
    protocol: &'static str,
    client: ClientInfo,
}

impl SyntheticStream {
    /// Parses a question; `None` if it is about a request.
    pub(super) fn parse(
        snapshot: &Snapshot,
        question: &Question,
    ) -> Result<Option<SyntheticStream>, InvalidSettings> {
        let scheme = question.url.split_once("://").map(|(scheme, rest)| (scheme.to_ascii_lowercase(), rest));
        // Without a scheme the question is about a request.
        let Some((scheme, rest)) = scheme else { return Ok(None) };
        let Some(protocol) = ["tcp", "tls", "udp"].into_iter().find(|known| *known == scheme) else {
            return Ok(None);
        };
        let listener = listener_of(snapshot, question)?;
        if let Some(listener) = listener {
            let accepted: &[ListenProtocol] = match protocol {
                "tcp" => &[ListenProtocol::Tcp],
                "udp" => &[ListenProtocol::Udp],
                // A scope of an https listener may pass TLS through.
                _ => &[ListenProtocol::Tls, ListenProtocol::Https],
            };
            check_protocol(listener, accepted, protocol)?;
        }
        let refuse = |message: String| InvalidSettings::at("url", format!("{:?} {message}", question.url));
        // A URL copied from a browser or a tool may end with a slash.
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, ""));
        let port = port
            .parse::<u16>()
            .map_err(|_| refuse(format!("has no port: the form is {protocol}://HOST:PORT")))?;
        // IPv6 addresses are in brackets (RFC 3986 §3.2.2).
        let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
        let is_name = address.is_err() && !matches!(host, "" | "*");
        // Plain TCP and UDP carry no name, so the port's address is all there is to match.
        if is_name && protocol != "tls" {
            return Err(refuse("has a name for its host, which only TLS carries: write the address".into()));
        }
        let sni = question.sni.clone().or_else(|| is_name.then(|| host.to_owned()));
        if sni.is_some() && protocol != "tls" {
            let message = format!("a {protocol} stream has no server name: use tls://{authority}");
            return Err(InvalidSettings::at("sni", message));
        }
        let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
        // IPv4-mapped addresses count as IPv4, as in serving.
        let local = SocketAddr::new(address.unwrap_or(here).to_canonical(), port);
        let peer = SocketAddr::new(question.client_ip.unwrap_or(here).to_canonical(), 0);
        // Names in stream routes are compared in lower case.
        let sni = sni.map(|sni| sni.to_ascii_lowercase().into_boxed_str());
        let tls = (protocol == "tls").then(|| TlsInfo { sni, ..TlsInfo::default() });
        Ok(Some(SyntheticStream {
            protocol,
            client: ClientInfo {
                peer,
                local,
                tls,
                connection_id: 0,
                listener: listener.map(|listener| listener.number).unwrap_or_default(),
                mapped_port: 0,
            },
        }))
    }

    fn sni(&self) -> Option<&str> {
        self.client.tls.as_ref()?.sni.as_deref()
    }

    fn lookup(&self) -> StreamLookup<'_> {
        StreamLookup { remote: self.client.peer.ip(), server: self.client.local, sni: self.sni() }
    }
}

/// Explains the handling of a stream.
pub(super) fn explain(
    snapshot: &Snapshot,
    arriving: &SyntheticStream,
    question: &Question,
    context: &ExplainContext<'_>,
) -> StreamExplanation {
    let lookup = arriving.lookup();
    let (listener, no_routes) = (arriving.client.listener, StreamRouter::default());
    let streams = snapshot.streams_of(listener, lookup.sni).unwrap_or(&no_routes);
    let winner = streams.find(&lookup);
    let words = StreamMismatchText { streams, lookup, winner: winner.map(|route| &**route) };
    let (candidates, others) = words.candidates();
    let mut explanation = StreamExplanation {
        revision: snapshot.revision,
        stream: ExplainedStream {
            protocol: arriving.protocol,
            server: lookup.server,
            client_ip: lookup.remote,
            sni: arriving.sni().map(str::to_owned),
        },
        scope: ScopeSelection::of(snapshot, &arriving.client, lookup.sni.unwrap_or_default().as_bytes()),
        certificate: None,
        stream_route: winner.map(|route| StreamChoice {
            id: route.info.id.clone(),
            origin: origin(Kind::StreamRoutes, &route.info.id, context),
            service_id: route.info.service_id.clone(),
            matched: conditions(&route.matching).into_iter().map(|(_, text)| text).collect(),
        }),
        candidates,
        others,
        why_not: question.why_not.as_deref().map(|route_id| words.why_not(route_id, context)),
        plugins: Vec::new(),
        upstream: None,
        remarks: Vec::new(),
    };
    let sni = arriving.sni().unwrap_or_default();
    if arriving.protocol == "tls" {
        // Without a server name the listener presents the certificate of `*`.
        let (certificate, refused) = certificate_choice(snapshot, listener, sni);
        explanation.certificate = certificate;
        explanation.remarks.extend(refused);
    }
    if arriving.protocol == "tls" && listener.is_static() && snapshot.is_closed(sni) {
        let name = if sni.is_empty() { "no server name" } else { sni };
        explanation.remarks.push(format!(
            "a listener of protocol tls refuses it: no ssl object matches {name}, and others require client certificates"
        ));
    }
    if let Some(route) = winner {
        follow(snapshot, arriving, route, context, &mut explanation);
    }
    explanation
}

/// Adds the plugins and the upstream of the matching route.
fn follow(
    snapshot: &Snapshot,
    arriving: &SyntheticStream,
    route: &StreamRoute,
    context: &ExplainContext<'_>,
    explanation: &mut StreamExplanation,
) {
    let host = DryRunHost(context.now);
    let mut ex = Exchange::new(
        Box::<RequestHead>::default(),
        &arriving.client,
        context.now,
        &host,
        &snapshot.consumers,
    );
    // The identifier of an MQTT client is in its first packet, which a dry run does not have.
    ex.client.stream = Some(StreamInfo { protocol: arriving.protocol, mqtt_client_id: None });
    ex.route.info = Some(&route.info);
    let mut walk = RequestSimulation::new(snapshot, &mut ex, None, None);
    walk.decide_stream(&route.chain);
    let is_refused = walk.answered.is_some();
    (explanation.plugins, explanation.remarks) = (walk.steps, walk.remarks);
    let object = format!("stream_routes/{}", route.info.id);
    if let Some(message) = finding(&object, context) {
        explanation.remarks.push(format!("{object} is not active as written: {message}"));
    }
    // The upstream of a refused stream would suggest that it is reached.
    if is_refused {
        return explanation.remarks.push("a plugin refuses it: the connection is closed".into());
    }
    if let RouteTarget::Weighted(of) = &route.target {
        explanation.remarks.push(super::backends::shares(snapshot, of));
    }
    let upstream = match &route.target {
        RouteTarget::Upstream(slot) => snapshot.upstream(*slot),
        RouteTarget::Weighted(of) => of.largest().and_then(|target| snapshot.upstream(target.slot?)),
        _ => None,
    };
    let Some(upstream) = upstream else {
        return explanation.remarks.push("neither the route nor its service has an active upstream".into());
    };
    let next = upstream.peek(&ex);
    if next.is_none() {
        explanation.remarks.push(super::backends::without_endpoint(upstream));
    }
    explanation.upstream = Some(UpstreamView::of(upstream, next));
}

fn finding<'b>(object: &str, context: &ExplainContext<'b>) -> Option<&'b str> {
    let problem =
        context.problems.iter().find(|one| one.object == object && one.level == ProblemLevel::Error);
    problem.map(|problem| &*problem.message)
}

/// All conditions of a route, in the order of evaluation.
fn conditions(matching: &StreamMatching) -> Vec<(StreamMismatch, String)> {
    let network = |name: &str, network: &Option<crate::streams::AddressBlock>| {
        network.as_ref().map(|network| format!("{name} {}", network.text()))
    };
    let all = [
        (StreamMismatch::ServerName, matching.sni.as_ref().map(|sni| format!("sni {sni}"))),
        (StreamMismatch::ServerPort, matching.server_port.map(|port| format!("server_port {port}"))),
        (StreamMismatch::ServerAddress, network("server_addr", &matching.server_addr)),
        (StreamMismatch::ClientAddress, network("remote_addr", &matching.remote_addr)),
    ];
    all.into_iter().filter_map(|(what, text)| Some((what, text?))).collect()
}

struct StreamMismatchText<'w> {
    streams: &'w StreamRouter,
    lookup: StreamLookup<'w>,
    winner: Option<&'w StreamRoute>,
}

impl StreamMismatchText<'_> {
    /// Routes that match too, or the nearest if none matches; and the number of the others.
    fn candidates(&self) -> (Vec<StreamCandidate>, usize) {
        let streams = self.streams;
        // The winner is shown by itself.
        let all = streams.all().count() - usize::from(self.winner.is_some());
        let shown: Vec<StreamCandidate> = match self.winner {
            Some(_) => {
                let fits = streams
                    .candidates(&self.lookup)
                    .filter(|one| one.matching.differs(&self.lookup).is_none());
                // The first match is the winner.
                fits.skip(1).take(NEAREST_MAX).map(|route| self.candidate(route)).collect()
            }
            None => {
                let mut ranked: Vec<_> = streams.all().map(|route| (self.misses(route), route)).collect();
                // Equally near routes are ordered by id, so that the list is reproducible.
                ranked.sort_by(|a, b| a.0.cmp(&b.0).then_with(|| a.1.info.id.cmp(&b.1.info.id)));
                ranked.into_iter().take(NEAREST_MAX).map(|(_, route)| self.candidate(route)).collect()
            }
        };
        let others = all - shown.len();
        (shown, others)
    }

    /// The number of conditions that do not match.
    fn misses(&self, route: &StreamRoute) -> usize {
        let mut matching = route.matching.clone();
        let mut misses = 0;
        // `differs` returns only the first mismatch, so each is removed from a copy in turn.
        while let Some(differs) = matching.differs(&self.lookup) {
            misses += 1;
            match differs {
                StreamMismatch::ServerName => matching.sni = None,
                StreamMismatch::ServerPort => matching.server_port = None,
                StreamMismatch::ServerAddress => matching.server_addr = None,
                StreamMismatch::ClientAddress => matching.remote_addr = None,
            }
        }
        misses
    }

    fn candidate(&self, route: &StreamRoute) -> StreamCandidate {
        let differs = route.matching.differs(&self.lookup);
        let why = match differs {
            None => self.shadowed(route),
            Some(differs) => {
                let condition = conditions(&route.matching).into_iter().find(|(what, _)| *what == differs);
                let found = match differs {
                    StreamMismatch::ServerName => self.lookup.sni.unwrap_or("no name at all").to_owned(),
                    StreamMismatch::ServerPort => self.lookup.server.port().to_string(),
                    StreamMismatch::ServerAddress => self.lookup.server.ip().to_string(),
                    StreamMismatch::ClientAddress => self.lookup.remote.to_string(),
                };
                format!("it requires {}, not {found}", condition.map(|(_, text)| text).unwrap_or_default())
            }
        };
        StreamCandidate { stream_route: route.info.id.clone(), differs, why }
    }

    /// Why the winner took precedence.
    fn shadowed(&self, route: &StreamRoute) -> String {
        let Some(winner) = self.winner else { return String::new() };
        let (id, winning, own) = (&winner.info.id, &winner.matching, &route.matching);
        // The order of the comparisons is that of `StreamRouteRank`.
        match (&winning.sni, &own.sni) {
            (Some(name), None) => return format!("stream route {id} requires a server name, {name}"),
            (Some(winning), Some(own)) if winning != own => {
                return format!("stream route {id} requires a closer server name, {winning}");
            }
            _ => {}
        }
        if let (Some(port), None) = (winning.server_port, own.server_port) {
            return format!("stream route {id} requires the port, {port}");
        }
        let differ = [
            ("server_addr", &winning.server_addr, &own.server_addr),
            ("remote_addr", &winning.remote_addr, &own.remote_addr),
        ];
        for (name, winning, own) in differ {
            if let Some(winning) = winning.as_ref().filter(|winning| Some(*winning) != own.as_ref()) {
                return format!("stream route {id} requires a closer {name}, {}", winning.text());
            }
        }
        match winning.created < own.created {
            true => format!("stream route {id} has as many conditions and is older"),
            false => format!("stream route {id} has as many conditions and a lower id"),
        }
    }

    fn why_not(&self, route_id: &str, context: &ExplainContext<'_>) -> StreamCandidate {
        let found =
            // Operators know routes by name as well as by id.
            self.streams.all().find(|one| *one.info.id == *route_id || *one.info.name == *route_id);
        let Some(route) = found else {
            return StreamCandidate {
                stream_route: route_id.into(),
                differs: None,
                why: absent(route_id, context),
            };
        };
        if self.winner.is_some_and(|winner| winner.info.id == route.info.id) {
            let why = "it gets the stream".to_owned();
            return StreamCandidate { stream_route: route.info.id.clone(), differs: None, why };
        }
        self.candidate(route)
    }
}

/// Why a stream route is not active at all.
fn absent(route_id: &str, context: &ExplainContext<'_>) -> String {
    if let Some(message) = finding(&format!("stream_routes/{route_id}"), context) {
        return format!("it is not active: {message}");
    }
    // Without the texts, a file may contain the route without it being in force.
    match context.text.map(|texts| texts(Kind::StreamRoutes, route_id).is_some()) {
        Some(true) => "it exists, but is not active".into(),
        Some(false) => "no stream route has this id or name".into(),
        None => "no active stream route has this id or name".into(),
    }
}

#[cfg(test)]
mod tests;
