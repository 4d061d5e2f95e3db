//! Stream routes: staged from text, then linked to their service and upstream.

use std::sync::Arc;

use serde_json::Value;
use yumen_base::Problem;
use yumen_config::resource as config;
use yumen_config::resource::ResourceDefect;
use yumen_config::{InvalidSettings, Kind, decode};
use yumen_plugin::{PluginChain, RouteInfo};

use super::names::ObjectName;
use super::plugin_settings::PluginOwner;
use super::plugins::{self, PluginEntry, metadata_of};
use super::route::matched_by;
use super::target::StagedTarget;
use super::upstream::{ignored_proxy_protocol, unserved_scheme};
use super::{Compiler, StageResult, invalid, missing_plugins, scope, suspicious_values, target};
use crate::route::RouteTarget;
use crate::route::ScopeIds;
use crate::streams::{AddressBlock, StreamMatching, StreamRoute};

/// The parts of a stream route that linking combines with those of other objects.
#[derive(Debug)]
pub(super) struct StagedStream {
    own: Box<[PluginEntry]>,
    service: Option<Arc<str>>,
    target: StagedTarget,
    scopes: Option<Arc<ScopeIds>>,
    /// Whether connections are matched at all.
    is_enabled: bool,
    /// Whether only the matching part of the text is valid. Such a route refuses its connections.
    pub(super) is_broken: bool,
}

impl StagedStream {
    fn new(written: &config::StreamRouteSpec, own: Box<[PluginEntry]>, target: StagedTarget) -> StagedStream {
        let protocol = written.protocol.as_ref();
        StagedStream {
            own,
            service: written.service_id.as_ref().map(|id| id.0.clone()),
            target,
            scopes: ScopeIds::of(written.scopes.as_deref()),
            // A route with a superior one is for calls inside its protocol, never for connections.
            is_enabled: protocol.is_none_or(|protocol| protocol.superior_id.is_none()),
            is_broken: false,
        }
    }

    /// The objects that the stream route depends on.
    fn references(&self) -> impl Iterator<Item = ObjectName> {
        let service = self.service.clone().map(|id| ObjectName::new(Kind::Services, id));
        let named = self.target.references().chain(service).chain(metadata_of(&self.own));
        named.chain(scope::references(&self.scopes))
    }
}

/// The fields that a broken stream route is matched by.
const MATCHING_FIELDS: [&str; 6] =
    ["remote_addr", "server_addr", "server_port", "sni", "create_time", "scopes"];

fn matching(written: &config::StreamRouteSpec) -> Result<StreamMatching, InvalidSettings> {
    let network = |path: &str, text: &Option<String>| match text {
        None => Ok(None),
        Some(text) => match AddressBlock::parse(text) {
            Some(network) => Ok(Some(network)),
            None => {
                let message = format!("\"{text}\" is neither an address nor a network");
                Err(InvalidSettings::at(path, message))
            }
        },
    };
    Ok(StreamMatching {
        remote_addr: network("remote_addr", &written.remote_addr)?,
        server_addr: network("server_addr", &written.server_addr)?,
        server_port: written.server_port,
        sni: written.sni.as_ref().map(|name| name.to_ascii_lowercase().into()),
        created: written.create_time.map_or(0, |at| at.max(0) as u64),
    })
}

impl Compiler {
    pub(super) fn stage_stream(&mut self, name: &ObjectName, json: &str) -> StageResult {
        let mut written: config::StreamRouteSpec =
            decode(json).map_err(|error| vec![invalid(name, error)])?;
        let matching = matching(&written).map_err(|error| vec![invalid(name, error)])?;
        let built = self.plugin_builder().build(name, written.plugins.take(), PluginOwner::Stream);
        if built.failed {
            return Err(built.problems);
        }
        let mut problems = built.problems;
        problems.extend(ignored_proxy_protocol(name, "upstream.proxy_protocol", written.upstream.as_ref()));
        problems.extend(suspicious_values::of_server_names(name, written.sni.as_deref(), None));
        problems.extend(suspicious_values::of_target(
            name,
            written.upstream.as_ref(),
            written.upstream_id.is_some(),
        ));
        problems.extend(unserved_scheme(name, "upstream.scheme", written.upstream.as_ref()));
        let backends = written.backends.as_deref().map(target::backends).transpose();
        let backends = backends.map_err(|error| vec![invalid(name, error)])?;
        // Last of the fallible steps, as in `stage_route`.
        let target =
            self.stage_target(name, written.upstream.take(), written.upstream_id.take(), backends)?;
        self.unroute_stream(name);
        problems.extend(ignored_protocol(name, &written));
        let route = self.new_stream_route(name, &written, matching);
        self.insert_stream(name, route, StagedStream::new(&written, built.entries.into(), target));
        Ok(problems)
    }

    /// The compiled form of a stream route before it is linked.
    fn new_stream_route(
        &self,
        name: &ObjectName,
        written: &config::StreamRouteSpec,
        matching: StreamMatching,
    ) -> StreamRoute {
        let info = RouteInfo {
            id: Box::from(&*name.id),
            name: written.name.as_deref().unwrap_or("").into(),
            service_id: written.service_id.as_ref().map(|id| Box::from(id.as_str())).unwrap_or_default(),
            ..RouteInfo::default()
        };
        StreamRoute {
            info,
            matching,
            target: RouteTarget::None,
            chain: self.context.empty_chain.clone(),
            scopes: ScopeIds::of(written.scopes.as_deref()),
        }
    }

    fn insert_stream(&mut self, name: &ObjectName, route: StreamRoute, staged: StagedStream) {
        self.references.add_all(staged.references(), name);
        self.stream_routes.insert(name.id.clone(), route, staged);
    }

    /// Has a broken stream route refuse the connections that it matches, if its matching part is valid.
    pub(super) fn salvage_stream(&mut self, name: &ObjectName, json: &str, defects: &[ResourceDefect]) {
        let Some(RefusingStream { written, matching }) = refusing_stream(name, json, defects) else {
            // As for routes (decision 50).
            match self.context.closes_broken(name.kind) || self.context.lacks_guard(name.kind, json, None) {
                true => self.close_stream(name),
                false => self.remove_stream(name),
            }
            return;
        };
        self.remove_stream(name);
        let route = self.new_stream_route(name, &written, matching);
        let staged = StagedStream::new(&written, Box::default(), StagedTarget::None);
        self.insert_stream(name, route, StagedStream { is_broken: true, ..staged });
    }

    /// Has a stream route in force refuse the connections that it has matched so far.
    fn close_stream(&mut self, name: &ObjectName) {
        self.unroute_stream(name);
        self.remove_upstream(name);
        let Some(staged) = self.stream_routes.unroute(&name.id) else { return };
        staged.is_broken = true;
        staged.own = Box::default();
        staged.target = StagedTarget::None;
        self.references.add_all(staged.references(), name);
    }

    /// Takes a stream route out of the router and removes its references. The staged form stays.
    fn unroute_stream(&mut self, name: &ObjectName) {
        let Some(staged) = self.stream_routes.unroute(&name.id) else { return };
        self.references.remove_all(staged.references(), name);
    }

    pub(super) fn remove_stream(&mut self, name: &ObjectName) {
        self.unroute_stream(name);
        self.stream_routes.remove(&name.id);
        self.remove_upstream(name);
    }

    /// Combines a stream route with its service and upstream, and routes it.
    pub(super) fn link_stream(&mut self, name: &ObjectName) -> Vec<Problem> {
        let Some(object) = self.stream_routes.get(&name.id) else { return Vec::new() };
        let (staged, previous) = (&object.staged, object.route());
        let mut problems = Vec::new();
        let mut target = self.stream_target(name, staged, &mut problems);
        let service = staged.service.as_ref().and_then(|id| self.staged.services.get(id));
        let inherited = service.map_or(&[][..], |one| &one.plugins.entries);
        // A guard that runs for requests but not for streams would leave the service open on this side.
        if let Some(guard) = self.context.missing_on_streams(&staged.own, inherited) {
            problems.push(missing_plugins::problem(
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
        let route = StreamRoute {
            info: RouteInfo {
                service_name: service.map(|one| one.name.clone()).unwrap_or_default(),
                ..previous.info.clone()
            },
            matching: previous.matching.clone(),
            target,
            chain: self.stream_chain(&staged.own, inherited),
            scopes: previous.scopes.clone(),
        };
        let is_enabled = staged.is_enabled;
        self.stream_routes.link(&name.id, route, is_enabled);
        problems
    }

    /// The chain of a stream route: its own plugins over those of its service that serve streams.
    fn stream_chain(&self, own: &[PluginEntry], service: &[PluginEntry]) -> Arc<PluginChain> {
        let serves = |entry: &&PluginEntry| {
            // Plugins of a service that serve requests only do not concern streams.
            self.context.registry.get(entry.name()).is_some_and(|registered| registered.kind.serves.streams())
        };
        let service: Vec<PluginEntry> = service.iter().filter(serves).cloned().collect();
        if own.is_empty() && service.is_empty() {
            return self.context.empty_chain.clone();
        }
        Arc::new(PluginChain::new(plugins::merge(&[own, &service])))
    }

    fn stream_target(
        &self,
        name: &ObjectName,
        staged: &StagedStream,
        problems: &mut Vec<Problem>,
    ) -> RouteTarget {
        let refuse = |message: &str| RouteTarget::Refuse { status: 503, message: message.into() };
        let mut missing = |path: &str, what: &str, id: &str| {
            let problem =
                Problem::error(name.to_string(), path, format!("{what} {id} does not exist or is broken"));
            problems.push(problem.hint(format!(
                "{}create or fix the {what}; the stream route then becomes active",
                self.meant_id(what, id)
            )));
            refuse("an object that the stream route refers to is missing")
        };
        if staged.is_broken {
            return refuse("the stream route is misconfigured");
        }
        let service = staged.service.as_ref().map(|id| (id, self.staged.services.get(id)));
        let target = match (&staged.target, service) {
            (_, Some((id, None))) => return missing("service_id", "service", id),
            (StagedTarget::None, Some((_, Some(service)))) => &service.target,
            (own, _) => own,
        };
        match target {
            StagedTarget::None => {
                let message = "no upstream: connections are closed";
                problems.push(Problem::warning(name.to_string(), "upstream", message));
                refuse("the stream route has no upstream")
            }
            StagedTarget::Inline(slot) => RouteTarget::Upstream(*slot),
            StagedTarget::Weighted(backends) => self.weighted_target(backends, false, |at, id| {
                drop(missing(&format!("backends[{at}].upstream_id"), "upstream", id));
            }),
            StagedTarget::Named(id) => {
                match self.upstreams.slot_of(&ObjectName::new(Kind::Upstreams, id.clone())) {
                    Some(slot) => RouteTarget::Upstream(slot),
                    None => missing("upstream_id", "upstream", id),
                }
            }
        }
    }
}

/// The matching part of a broken stream route.
struct RefusingStream {
    written: config::StreamRouteSpec,
    matching: StreamMatching,
}

/// The connections that a broken text matches; `None` if that is uncertain.
fn refusing_stream(name: &ObjectName, json: &str, defects: &[ResourceDefect]) -> Option<RefusingStream> {
    let mut matched = matched_by(name.kind, json, &MATCHING_FIELDS, defects)?;
    // The defective field may be this one, which only orders routes.
    if !matched.get("create_time").is_some_and(Value::is_i64) {
        matched.remove("create_time");
    }
    let written: config::StreamRouteSpec = config::decode_value(Value::Object(matched)).ok()?;
    let matching = matching(&written).ok()?;
    Some(RefusingStream { written, matching })
}

/// A warning about `protocol`, which this version stores and does not serve.
fn ignored_protocol(name: &ObjectName, written: &config::StreamRouteSpec) -> Option<Problem> {
    let protocol = written.protocol.as_ref()?;
    let message = match protocol.superior_id {
        Some(_) => {
            "calls inside a protocol are not routed in this version: the stream route gets no connection"
        }
        None => "the protocol inside is not looked at in this version: bytes pass as they are",
    };
    Some(Problem::warning(name.to_string(), "protocol", message))
}

/// Checks the matching part of a stream route, for the validation of single objects.
pub(super) fn check_matching(written: &config::StreamRouteSpec) -> Result<(), InvalidSettings> {
    matching(written).map(drop)
}

#[cfg(test)]
mod tests;
