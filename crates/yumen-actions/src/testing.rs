//! Exchanges for tests, and chains of actions that run in them.

pub(crate) mod guard;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use yumen_base::Now;
use yumen_config::resource::{RouteActionsSpec, RouteSpec, decode_value};
use yumen_http::{HeadLimits, parse};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    ClientInfo, ConsumerIndex, Exchange, PhaseSet, PluginHost, PluginInstance, RequestHead, ResponseHead,
    ResponseHeadPhase, Step, TlsInfo, UpstreamSlot,
};

use crate::ActionUpstreams;

/// A worker whose random numbers count up.
#[derive(Default)]
pub(crate) struct CountingHost(Cell<u64>);

impl PluginHost for CountingHost {
    fn sleep(&self, _: Duration) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> u64 {
        self.0.replace(self.0.get() + 1)
    }

    fn fill_random(&self, out: &mut [u8]) {
        out.fill(4);
    }

    fn worker(&self) -> usize {
        0
    }

    fn clock(&self) -> Now {
        Now::default()
    }
}

/// Upstreams `1` to `9`.
pub(crate) struct FewUpstreams;

impl ActionUpstreams for FewUpstreams {
    fn upstream(&self, id: &str) -> Option<UpstreamSlot> {
        id.parse().ok().map(UpstreamSlot::known)
    }

    fn warn(&self, _: &str, _: String, _: &str) {}
}

/// No upstreams, with the warnings of the build as `path: message`.
#[derive(Default)]
pub(crate) struct NotedWarnings(pub(crate) RefCell<Vec<String>>);

impl ActionUpstreams for NotedWarnings {
    fn upstream(&self, _: &str) -> Option<UpstreamSlot> {
        None
    }

    fn warn(&self, path: &str, message: String, _: &str) {
        self.0.borrow_mut().push(format!("{path}: {message}"));
    }
}

/// The actions of a route with these settings.
pub(crate) fn spec(actions: Value) -> RouteActionsSpec {
    let route = serde_json::json!({ "uri": "/*", "actions": actions });
    let text = route.to_string();
    decode_value::<RouteSpec>(route).unwrap_or_else(|error| panic!("{text}: {error:?}")).actions.unwrap()
}

/// The instances of these settings.
pub(crate) fn instances(actions: Value) -> Vec<Arc<PluginInstance>> {
    crate::build(&spec(actions), &Arc::from("routes/1"), &FewUpstreams).unwrap().instances
}

/// Runs `look` on the exchange of a request, whose lines end in `\n`, at a listener with this port; 443 and 8443 have
/// TLS.
pub(crate) fn with_exchange<T>(port: u16, request: &str, look: impl FnOnce(&mut Exchange<'_>) -> T) -> T {
    let (first, rest) = request.split_once('\n').unwrap_or((request, ""));
    let text = format!("{first} HTTP/1.1\n{rest}\n\n").replace("\n\n\n", "\n\n").replace('\n', "\r\n");
    let mut head = RequestHead::default();
    parse::request(text.as_bytes(), 0, &HeadLimits::default(), &mut head).expect("a well-formed request");
    let client = ClientInfo {
        peer: "192.0.2.7:4711".parse().unwrap(),
        local: format!("198.51.100.1:{port}").parse().unwrap(),
        tls: matches!(port, 443 | 8443).then(TlsInfo::default),
        connection_id: 1,
        listener: Default::default(),
        mapped_port: 0,
    };
    let (host, consumers) = (CountingHost::default(), ConsumerIndex::default());
    let mut ex = Exchange::new(head, &client, Now::default(), &host, &consumers);
    look(&mut ex)
}

/// The outcome of a request that passed the request phases of actions.
pub(crate) struct ActionOutcome {
    /// Status and fields of a local response, as lines.
    pub(crate) answered: Option<(u16, Vec<String>)>,
    /// The target for the upstream.
    pub(crate) target: String,
    /// The host for the upstream, if an action chose it.
    pub(crate) host: Option<String>,
    /// The fields for the upstream, as lines.
    pub(crate) fields: Vec<String>,
    /// Slots of the mirrors.
    pub(crate) mirrors: Vec<u32>,
    /// The fields of a response with `upstream` fields, as lines.
    pub(crate) response: Vec<String>,
}

/// Fields as lines.
pub(crate) fn lines(fields: &yumen_plugin::Fields) -> Vec<String> {
    let line = |(name, value): (&[u8], &[u8])| {
        format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value))
    };
    fields.iter().map(line).collect()
}

/// Runs actions on a request, and on a response with these fields.
pub(crate) fn run(port: u16, actions: Value, request: &str, upstream: &[(&str, &str)]) -> ActionOutcome {
    let chain = instances(actions);
    with_exchange(port, request, |ex| {
        let mut answered = None;
        for phase in [PhaseSet::REWRITE, PhaseSet::ACCESS] {
            for instance in chain.iter().filter(|one| one.phases.has(phase)) {
                let is_rewrite = phase == PhaseSet::REWRITE;
                let plugin = &instance.plugin;
                match if is_rewrite { plugin.rewrite(ex) } else { plugin.access(ex) } {
                    Step::Respond(response) if answered.is_none() => answered = Some(response),
                    Step::NeedBody { .. } => panic!("{request}: needs the body"),
                    _ => {}
                }
            }
        }
        let mut head = ResponseHead::default();
        match &answered {
            Some(response) => head.fields.extend(response.fields()),
            None => upstream.iter().for_each(|(name, value)| head.fields.add(name, value.as_bytes())),
        }
        for instance in chain.iter().filter(|one| one.phases.has(PhaseSet::RESPONSE_HEAD)) {
            instance.plugin.response_head(&mut ResponseHeadPhase::new(ex), &mut head);
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ActionOutcome {
            answered: answered.map(|response| (response.status, lines(response.fields()))),
            target: text(ex.request.upstream_target()),
            host: ex.upstream.host.as_deref().map(text),
            fields: lines(&ex.request.fields),
            mirrors: ex.upstream.mirrors.iter().filter_map(|mirror| mirror.upstream.get()).collect(),
            response: lines(&head.fields),
        }
    })
}
