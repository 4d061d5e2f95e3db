//! Stream routes: staged from text, then linked to their service and upstream.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::resource::ResourceDefect;
use yumen_config::{Kind, decode};
use yumen_plugin::{PluginChain, RouteInfo};

use super::plugins::{self, PluginEntry};
use super::route::StagedTarget;
use super::settings::PluginOwner;
use super::upstream::untold;
use super::{Compiler, ObjectName, StageResult, invalid, missing};
use crate::snapshot::{RouteTarget, UpstreamSlotId};
use crate::streams::{AddressBlock, StreamMatching, StreamRoute};

/// What is kept of a stream route to link it again.
#[derive(Debug)]
pub(super) struct StagedStream {
    /// As linked last.
    route: Arc<StreamRoute>,
    own: Box<[PluginEntry]>,
    service: Option<Arc<str>>,
    goes: StagedTarget,
    /// Whether connections are matched at all.
    enabled: bool,
    /// Whether the router has `route`.
    routed: bool,
    /// Whether only its matching part was understood.
    pub(super) broken: bool,
}

/// The fields a broken stream route is still matched by.
const MATCHING_FIELDS: [&str; 4] = ["remote_addr", "server_addr", "server_port", "sni"];

fn matching(written: &config::StreamRouteSpec) -> Result<StreamMatching, (&'static str, String)> {
    let network = |path, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match AddressBlock::parse(text) {
            Some(network) => Ok(Some(network)),
            None => Err((path, format!("\"{text}\" is neither an address nor a network"))),
        },
    };
    Ok(StreamMatching {
        remote_addr: network("remote_addr", &written.remote_addr)?,
        server_addr: network("server_addr", &written.server_addr)?,
        server_port: written.server_port,
        sni: written.sni.as_ref().map(|name| name.to_ascii_lowercase().into()),
    })
}

impl Compiler {
    pub(super) fn stage_stream(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::StreamRouteSpec =
            decode(json).map_err(|error| vec![invalid(name, error)])?;
        let refuse = |path: &str, message| vec![Problem::error(name.to_string(), path, message)];
        let matching = matching(&written).map_err(|(path, message)| refuse(path, message))?;
        let built = self.build_plugins(name, written.plugins.take(), PluginOwner::Stream);
        if built.failed {
            return Err(built.problems);
        }
        let untold = untold(name, "upstream.proxy_protocol", written.upstream.as_ref());
        let goes = self.stage_goes(name, written.upstream.take(), written.upstream_id.take())?;
        self.unroute_stream(name);
        let mut problems = built.problems;
        problems.extend(untold);
        problems.extend(unserved(name, &written));
        let held = self.held_stream(name, &written, matching, built.entries.into(), goes);
        self.add_uses(name, held.own.iter());
        for on in refs(&held) {
            self.dependents.add(on, name);
        }
        self.staged_streams.insert(name.id.clone(), held);
        Ok(problems)
    }

    fn held_stream(
        &self,
        name: &ObjectName,
        written: &config::StreamRouteSpec,
        matching: StreamMatching,
        own: Box<[PluginEntry]>,
        goes: StagedTarget,
    ) -> StagedStream {
        let service = written.service_id.as_ref().map(|id| id.0.clone());
        let info = RouteInfo {
            id: Box::from(&*name.id),
            name: written.name.as_deref().unwrap_or("").into(),
            service_id: service.as_deref().unwrap_or("").into(),
            service_name: Box::default(),
        };
        let chain = self.empty_chain.clone();
        let protocol = written.protocol.as_ref();
        StagedStream {
            route: Arc::new(StreamRoute { info, matching, target: RouteTarget::None, chain }),
            own,
            service,
            goes,
            // Calls of a protocol inside would be routed to it, never connections.
            enabled: protocol.is_none_or(|protocol| protocol.superior_id.is_none()),
            routed: false,
            broken: false,
        }
    }

    /// Lets a new broken stream route match and refuse, if what it matches can be understood.
    pub(super) fn salvage_stream(&mut self, name: &ObjectName, json: &str, defects: &[ResourceDefect]) {
        let Some(held) = self.refusing_stream(name, json, defects) else {
            match self.lacks_guard(name.kind, json) {
                true => self.close_stream(name),
                false => self.remove_stream(name),
            }
            return;
        };
        self.remove_stream(name);
        self.staged_streams.insert(name.id.clone(), held);
    }

    /// A stream route that refuses the connections that a broken text matches; none where that cannot be told.
    fn refusing_stream(
        &self,
        name: &ObjectName,
        json: &str,
        defects: &[ResourceDefect],
    ) -> Option<StagedStream> {
        let kept = super::route::matched_by(name.kind, json, &MATCHING_FIELDS, defects)?;
        let written: config::StreamRouteSpec = config::decode_value(Value::Object(kept)).ok()?;
        let matching = matching(&written).ok()?;
        let held = self.held_stream(name, &written, matching, Box::default(), StagedTarget::None);
        Some(StagedStream { broken: true, ..held })
    }

    /// Lets a stream route, if it is in force, refuse the connections that it has matched so far.
    fn close_stream(&mut self, name: &ObjectName) {
        self.unroute_stream(name);
        self.remove_upstream(name);
        let Some(held) = self.staged_streams.get_mut(&name.id) else { return };
        held.broken = true;
        held.own = Box::default();
        held.goes = StagedTarget::None;
    }

    /// Takes a stream route out of the router and the index, leaving what is held of it.
    fn unroute_stream(&mut self, name: &ObjectName) {
        let Some(held) = self.staged_streams.get_mut(&name.id) else { return };
        if std::mem::take(&mut held.routed) {
            self.streams.remove(&held.route);
        }
        let on: Vec<ObjectName> = refs(held).chain(super::route::uses(held.own.iter())).collect();
        for on in on {
            self.dependents.remove(on, name);
        }
    }

    pub(super) fn remove_stream(&mut self, name: &ObjectName) {
        self.unroute_stream(name);
        self.staged_streams.remove(&name.id);
        self.remove_upstream(name);
    }

    /// Gives a stream route what its service and upstream say now, and routes it.
    pub(super) fn link_stream(&mut self, name: &ObjectName) -> Vec<Problem> {
        let Some(mut held) = self.staged_streams.remove(&name.id) else { return Vec::new() };
        let mut problems = Vec::new();
        let mut target = self.stream_target(name, &held, &mut problems);
        let service = held.service.as_ref().and_then(|id| self.services.get(id));
        let inherited = service.map_or(&[][..], |one| &one.plugins.entries);
        if let Some(guard) = self.missing_on_streams(&held.own, inherited) {
            problems.push(missing::problem(
                &name.to_string(),
                "service_id".into(),
                guard.name,
                PluginOwner::Stream,
            ));
            target = RouteTarget::Refuse {
                status: 503,
                message: "a plugin of the service is not available".into(),
            };
        }
        let old = &held.route;
        let route = StreamRoute {
            info: RouteInfo {
                service_name: service.map(|one| one.name.clone()).unwrap_or_default(),
                ..old.info.clone()
            },
            matching: old.matching.clone(),
            target,
            chain: self.stream_chain(&held.own, inherited),
        };
        if std::mem::take(&mut held.routed) {
            self.streams.remove(&held.route);
        }
        held.route = Arc::new(route);
        if held.enabled {
            self.streams.insert(&held.route);
            held.routed = true;
        }
        self.staged_streams.insert(name.id.clone(), held);
        problems
    }

    /// Its own plugins over those of its service that serve streams.
    fn stream_chain(&self, own: &[PluginEntry], service: &[PluginEntry]) -> Arc<PluginChain> {
        let serves = |entry: &&PluginEntry| {
            self.registry.get(entry.name()).is_some_and(|registered| registered.kind.serves.streams())
        };
        let service: Vec<PluginEntry> = service.iter().filter(serves).cloned().collect();
        if own.is_empty() && service.is_empty() {
            return self.empty_chain.clone();
        }
        Arc::new(PluginChain::new(plugins::merge(&[own, &service])))
    }

    fn stream_target(
        &self,
        name: &ObjectName,
        held: &StagedStream,
        problems: &mut Vec<Problem>,
    ) -> RouteTarget {
        let refuse = |message: &str| RouteTarget::Refuse { status: 503, message: message.into() };
        let mut missing = |path: &str, what: &str, id: &str| {
            let problem =
                Problem::error(name.to_string(), path, format!("{what} {id} does not exist or is broken"));
            problems.push(
                problem.hint(format!("create or fix the {what}; the stream route then becomes active")),
            );
            refuse("an object that the stream route refers to is missing")
        };
        if held.broken {
            return refuse("the stream route is misconfigured");
        }
        let service = held.service.as_ref().map(|id| (id, self.services.get(id)));
        let goes = match (&held.goes, service) {
            (_, Some((id, None))) => return missing("service_id", "service", id),
            (StagedTarget::None, Some((_, Some(service)))) => &service.goes,
            (own, _) => own,
        };
        match goes {
            StagedTarget::None => {
                let message = "no upstream: connections are closed";
                problems.push(Problem::warning(name.to_string(), "upstream", message));
                refuse("the stream route has no upstream")
            }
            StagedTarget::Inline(slot) => RouteTarget::Upstream(*slot),
            StagedTarget::Named(id) => match self.slots.get(&ObjectName::new(Kind::Upstreams, id.clone())) {
                Some(slot) => RouteTarget::Upstream(UpstreamSlotId(*slot)),
                None => missing("upstream_id", "upstream", id),
            },
        }
    }
}

/// Parts of a stream route that are kept and do nothing.
fn unserved(name: &ObjectName, written: &config::StreamRouteSpec) -> Option<Problem> {
    let protocol = written.protocol.as_ref()?;
    let message = match protocol.superior_id {
        Some(_) => {
            "calls inside a protocol are not routed in this version: the stream route gets no connection"
        }
        None => "the protocol inside is not looked at in this version: bytes pass as they are",
    };
    Some(Problem::warning(name.to_string(), "protocol", message))
}

/// The objects a stream route names.
fn refs(held: &StagedStream) -> impl Iterator<Item = ObjectName> + use<> {
    let upstream = match &held.goes {
        StagedTarget::Named(id) => Some(ObjectName::new(Kind::Upstreams, id.clone())),
        _ => None,
    };
    let service = held.service.clone().map(|id| ObjectName::new(Kind::Services, id));
    [upstream, service].into_iter().flatten()
}

/// What a stream route asks for, for whoever judges it before it is stored.
pub(super) fn check_matching(written: &config::StreamRouteSpec) -> Result<(), (&'static str, String)> {
    matching(written).map(drop)
}

#[cfg(test)]
mod tests;
