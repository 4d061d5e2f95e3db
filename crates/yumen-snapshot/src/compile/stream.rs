//! Stream routes: staged from text, then linked to their service and upstream.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::resource::Defect;
use yumen_config::{Kind, decode};
use yumen_plugin::{Chain, RouteInfo};

use super::plugins::{self, Entry};
use super::route::Goes;
use super::settings::Side;
use super::upstream::untold;
use super::{Compiler, Name, Staged, invalid, missing};
use crate::snapshot::{Slot, Target};
use crate::streams::{Network, StreamMatching, StreamRoute};

/// What is kept of a stream route to link it again.
#[derive(Debug)]
pub(super) struct StreamHeld {
    /// As linked last.
    route: Arc<StreamRoute>,
    own: Box<[Entry]>,
    service: Option<Arc<str>>,
    goes: Goes,
    /// Whether connections are matched at all.
    enabled: bool,
    /// Whether the router has `route`.
    routed: bool,
    /// Whether only its matching part was understood.
    pub(super) broken: bool,
}

/// The fields a broken stream route is still matched by.
const MATCHING_FIELDS: [&str; 4] = ["remote_addr", "server_addr", "server_port", "sni"];

fn matching(written: &config::StreamRoute) -> Result<StreamMatching, (&'static str, String)> {
    let network = |path, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match Network::parse(text) {
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
    pub(super) fn stage_stream(&mut self, name: &Name, json: &str) -> Staged {
        let mut written: config::StreamRoute = decode(json).map_err(|error| vec![invalid(name, error)])?;
        let refuse = |path: &str, message| vec![Problem::error(name.to_string(), path, message)];
        let matching = matching(&written).map_err(|(path, message)| refuse(path, message))?;
        let built = self.build_plugins(name, written.plugins.take(), Side::Stream);
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
        self.streams_held.insert(name.id.clone(), held);
        Ok(problems)
    }

    fn held_stream(
        &self,
        name: &Name,
        written: &config::StreamRoute,
        matching: StreamMatching,
        own: Box<[Entry]>,
        goes: Goes,
    ) -> StreamHeld {
        let service = written.service_id.as_ref().map(|id| id.0.clone());
        let info = RouteInfo {
            id: Box::from(&*name.id),
            name: written.name.as_deref().unwrap_or("").into(),
            service_id: service.as_deref().unwrap_or("").into(),
            service_name: Box::default(),
        };
        let chain = self.empty_chain.clone();
        let protocol = written.protocol.as_ref();
        StreamHeld {
            route: Arc::new(StreamRoute { info, matching, target: Target::None, chain }),
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
    pub(super) fn salvage_stream(&mut self, name: &Name, json: &str, defects: &[Defect]) {
        self.remove_stream(name);
        let Some(kept) = super::route::matched_by(name.kind, json, &MATCHING_FIELDS, defects) else { return };
        let Ok(written) = config::decode_value::<config::StreamRoute>(Value::Object(kept)) else { return };
        let Ok(matching) = matching(&written) else { return };
        let mut held = self.held_stream(name, &written, matching, Box::default(), Goes::Nowhere);
        held.broken = true;
        self.streams_held.insert(name.id.clone(), held);
    }

    /// Takes a stream route out of the router and the index, leaving what is held of it.
    fn unroute_stream(&mut self, name: &Name) {
        let Some(held) = self.streams_held.get_mut(&name.id) else { return };
        if std::mem::take(&mut held.routed) {
            self.streams.remove(&held.route);
        }
        let on: Vec<Name> = refs(held).chain(super::route::uses(held.own.iter())).collect();
        for on in on {
            self.dependents.remove(on, name);
        }
    }

    pub(super) fn remove_stream(&mut self, name: &Name) {
        self.unroute_stream(name);
        self.streams_held.remove(&name.id);
        self.remove_upstream(name);
    }

    /// Gives a stream route what its service and upstream say now, and routes it.
    pub(super) fn link_stream(&mut self, name: &Name) -> Vec<Problem> {
        let Some(mut held) = self.streams_held.remove(&name.id) else { return Vec::new() };
        let mut problems = Vec::new();
        let mut target = self.stream_target(name, &held, &mut problems);
        let service = held.service.as_ref().and_then(|id| self.services.get(id));
        let inherited = service.map_or(&[][..], |one| &one.plugins.entries);
        if let Some(guard) = self.missing_on_streams(&held.own, inherited) {
            problems.push(missing::problem(&name.to_string(), "service_id".into(), guard.name, Side::Stream));
            target =
                Target::Refuse { status: 503, message: "a plugin of the service is not available".into() };
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
        self.streams_held.insert(name.id.clone(), held);
        problems
    }

    /// Its own plugins over those of its service that serve streams.
    fn stream_chain(&self, own: &[Entry], service: &[Entry]) -> Arc<Chain> {
        let serves = |entry: &&Entry| {
            self.registry.get(entry.name()).is_some_and(|registered| registered.kind.serves.streams())
        };
        let service: Vec<Entry> = service.iter().filter(serves).cloned().collect();
        if own.is_empty() && service.is_empty() {
            return self.empty_chain.clone();
        }
        Arc::new(Chain::new(plugins::merge(&[own, &service])))
    }

    fn stream_target(&self, name: &Name, held: &StreamHeld, problems: &mut Vec<Problem>) -> Target {
        let refuse = |message: &str| Target::Refuse { status: 503, message: message.into() };
        let mut missing = |path: &str, what: &str, id: &str| {
            let problem = Problem::error(name.to_string(), path, format!("there is no {what} {id} in force"));
            problems.push(
                problem.hint(format!("create the {what}, or mend it, and the stream route heals by itself")),
            );
            refuse("what the stream route refers to is missing")
        };
        if held.broken {
            return refuse("the stream route is misconfigured");
        }
        let service = held.service.as_ref().map(|id| (id, self.services.get(id)));
        let goes = match (&held.goes, service) {
            (_, Some((id, None))) => return missing("service_id", "service", id),
            (Goes::Nowhere, Some((_, Some(service)))) => &service.goes,
            (own, _) => own,
        };
        match goes {
            Goes::Nowhere => {
                let message = "there is no upstream: its connections are closed";
                problems.push(Problem::warning(name.to_string(), "upstream", message));
                refuse("the stream route has no upstream")
            }
            Goes::Inline(slot) => Target::Upstream(*slot),
            Goes::Named(id) => match self.slots.get(&Name::new(Kind::Upstreams, id.clone())) {
                Some(slot) => Target::Upstream(Slot(*slot)),
                None => missing("upstream_id", "upstream", id),
            },
        }
    }
}

/// Parts of a stream route that are kept and do nothing.
fn unserved(name: &Name, written: &config::StreamRoute) -> Option<Problem> {
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
fn refs(held: &StreamHeld) -> impl Iterator<Item = Name> + use<> {
    let upstream = match &held.goes {
        Goes::Named(id) => Some(Name::new(Kind::Upstreams, id.clone())),
        _ => None,
    };
    let service = held.service.clone().map(|id| Name::new(Kind::Services, id));
    [upstream, service].into_iter().flatten()
}

/// What a stream route asks for, for whoever judges it before it is stored.
pub(super) fn check_matching(written: &config::StreamRoute) -> Result<(), (&'static str, String)> {
    matching(written).map(drop)
}

#[cfg(test)]
mod tests;
