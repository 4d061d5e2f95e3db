//! Test harness for plugins: requests are text, responses and upstream requests are text, and only the test
//! moves the clock.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::Value;
use yumen_config::resource::UpstreamSpec;
use yumen_config::schema::InvalidSettings;
use yumen_http::{HeadLimits, Method, ParsedHead, parse};
use yumen_plugin::kind::{ConsumerKey, NodeFacts};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::proto::ProtoDescriptors;
use yumen_plugin::sink::SinkReceiver;
use yumen_plugin::{
    BodyChunk, Carry, ClientInfo, Consumer, ConsumerIdentity, ConsumerIndex, DirectoryQuery, DirectoryResult,
    DirectoryTarget, Exchange, ExchangeOutcome, Fields, LocalResponse, LogPreparation, Now, ObjectLookup,
    PhaseSet, Plugin, PluginBuildContext, PluginHost, PluginRegistry, RequestHead, ResponseBodyPhase,
    ResponseHead, ResponseHeadPhase, RouteInfo, SharedOutbound, SinkBatch, SinkHandle, SinkRegistry,
    SinkRequest, Step, SubrequestFault, SubrequestResponse, SubrequestSpec, UpstreamRequestPhase,
    UpstreamSlot,
};

/// Assigns slot 7 to every inline upstream.
pub(crate) struct InlineUpstreams;

impl ObjectLookup for InlineUpstreams {
    fn proto(&self, _: &str) -> Option<Arc<ProtoDescriptors>> {
        None
    }

    fn upstream(&self, _: &str) -> Option<UpstreamSlot> {
        None
    }

    fn inline_upstream(&self, _: &str, _: UpstreamSpec) -> Result<UpstreamSlot, InvalidSettings> {
        Ok(UpstreamSlot::known(7))
    }
}

/// A response to a subrequest.
pub(crate) fn service_response(
    status: u16,
    fields: &[(&str, &str)],
    body: &str,
) -> Result<SubrequestResponse, SubrequestFault> {
    let mut all = Fields::default();
    fields.iter().for_each(|(name, value)| all.add(name, value.as_bytes()));
    Ok(SubrequestResponse { status, fields: all, body: Some(body.into()), ..SubrequestResponse::default() })
}

/// A worker with a clock that only the test and sleeps move.
#[derive(Default)]
pub(crate) struct ManualHost {
    now: Cell<Now>,
    random: Cell<u64>,
    slept: RefCell<Vec<Duration>>,
    /// The outbound connections, if the test provides them.
    pub(crate) outbound: Option<SharedOutbound>,
    /// The response to subrequests, and the subrequests that were made.
    pub(crate) answer: Option<Result<SubrequestResponse, SubrequestFault>>,
    /// Responses to the first subrequests, before `answer`.
    pub(crate) answers: RefCell<VecDeque<Result<SubrequestResponse, SubrequestFault>>>,
    pub(crate) subrequests: RefCell<Vec<SubrequestSpec>>,
    /// The answer of directories, and the queries that were made.
    pub(crate) directory: Option<DirectoryResult>,
    pub(crate) queries: RefCell<Vec<(Arc<DirectoryTarget>, DirectoryQuery)>>,
}

impl ManualHost {
    /// Advances the clock.
    pub(crate) fn advance(&self, by: Duration) {
        let now = self.now.get();
        self.now.set(Now {
            mono_us: now.mono_us + by.as_micros() as u64,
            unix_ms: now.unix_ms + by.as_millis() as u64,
        });
    }
}

impl ManualHost {
    /// The current time.
    pub(crate) fn now(&self) -> Now {
        self.now.get()
    }

    /// Sets the clock.
    pub(crate) fn set_now(&self, now: Now) {
        self.now.set(now);
    }

    /// The sleeps since the last call.
    pub(crate) fn take_slept(&self) -> Vec<Duration> {
        self.slept.take()
    }
}

impl PluginHost for ManualHost {
    fn sleep(&self, delay: Duration) -> LocalFuture<'static, ()> {
        self.slept.borrow_mut().push(delay);
        self.advance(delay);
        Box::pin(async {})
    }

    fn random(&self) -> u64 {
        // splitmix64: the same sequence in every test.
        self.random.set(self.random.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut mixed = self.random.get();
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn fill_random(&self, out: &mut [u8]) {
        // The same sequence in every test.
        out.iter_mut().for_each(|byte| *byte = self.random() as u8);
    }

    fn worker(&self) -> usize {
        0
    }

    fn clock(&self) -> Now {
        self.now.get()
    }

    fn outbound(&self) -> Option<SharedOutbound> {
        self.outbound.clone()
    }

    fn append_entry(&self, sink: &SinkHandle, render: &mut dyn FnMut(&mut Vec<u8>)) {
        let mut entry = Vec::new();
        render(&mut entry);
        if !entry.is_empty() {
            sink.push(entry);
        }
    }

    fn send_subrequest(
        &self,
        question: SubrequestSpec,
    ) -> Option<LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>>> {
        self.subrequests.borrow_mut().push(question);
        let answer = self.answers.borrow_mut().pop_front().or_else(|| self.answer.clone())?;
        Some(Box::pin(async { answer }))
    }

    fn ask_directory(
        &self,
        target: &Arc<DirectoryTarget>,
        query: DirectoryQuery,
    ) -> Option<LocalFuture<'static, DirectoryResult>> {
        self.queries.borrow_mut().push((target.clone(), query));
        let answer = self.directory.clone()?;
        Some(Box::pin(async { answer }))
    }
}

/// The result of a request.
#[derive(Debug, Default)]
pub(crate) struct TestReply {
    /// Status for the client.
    pub(crate) status: u16,
    /// Fields for the client as lines `Name: value`, in order.
    pub(crate) fields: Vec<String>,
    /// Body for the client.
    pub(crate) body: String,
    /// The body as bytes.
    pub(crate) raw: Vec<u8>,
    /// The request to the upstream: `METHOD target`, then a line `Name: value` per field; `None` for a local
    /// response.
    pub(crate) upstream: Option<Vec<String>>,
    /// The duration of each wait of a plugin.
    pub(crate) slept: Vec<Duration>,
}

impl TestReply {
    /// The values of a response field, joined by `|`; `None` if it is absent.
    pub(crate) fn field(&self, name: &str) -> Option<String> {
        find(&self.fields, name)
    }

    /// The values of an upstream request field, joined by `|`.
    pub(crate) fn upstream_field(&self, name: &str) -> Option<String> {
        find(self.upstream.as_deref().expect("the request went upstream"), name)
    }

    /// The first line of the upstream request: `METHOD target`.
    pub(crate) fn upstream_line(&self) -> &str {
        &self.upstream.as_ref().expect("the request went upstream")[0]
    }
}

fn find(lines: &[String], name: &str) -> Option<String> {
    let of_name = |line: &'_ String| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then(|| value.to_owned())
    };
    let values: Vec<String> = lines.iter().filter_map(of_name).collect();
    (!values.is_empty()).then(|| values.join("|"))
}

/// The patterns by which a route matched.
pub(crate) struct RoutePatterns {
    pub(crate) uris: [Box<str>; 1],
    /// Empty for any host.
    pub(crate) host: &'static str,
}

/// The environment of a plugin: registry, consumers, route, client, clock.
pub(crate) struct PluginBench {
    /// The worker with the clock that the test moves.
    pub(crate) host: ManualHost,
    /// All consumers.
    pub(crate) consumers: ConsumerIndex,
    /// The client.
    pub(crate) client: ClientInfo,
    /// The matched route.
    pub(crate) route: RouteInfo,
    /// The patterns of the route.
    pub(crate) patterns: RoutePatterns,
    /// The object with the settings of the plugin.
    pub(crate) owner: String,
    /// The metadata of the plugin.
    pub(crate) metadata: Option<Value>,
    /// The node.
    pub(crate) node: NodeFacts,
    /// Carried state.
    pub(crate) carry: Carry,
    /// The response of the upstream.
    pub(crate) upstream_reply: String,
    /// Other objects of the configuration.
    pub(crate) objects: Option<Box<dyn ObjectLookup>>,
    /// Sinks of loggers.
    sinks: SinkRegistry,
    receivers: RefCell<Vec<SinkReceiver>>,
    /// The outcome of exchanges, beside their status.
    pub(crate) outcome: ExchangeOutcome<'static>,
    registry: PluginRegistry,
}

impl PluginBench {
    /// A harness with client 127.0.0.1, route 1 of service `s1`, one worker, and an upstream that responds
    /// `ok`.
    pub(crate) fn new() -> PluginBench {
        let host = ManualHost::default();
        host.now.set(Now { mono_us: 5_000_000, unix_ms: 1_700_000_000_000 });
        PluginBench {
            host,
            consumers: ConsumerIndex::default(),
            client: ClientInfo {
                peer: address("127.0.0.1:40000"),
                local: address("127.0.0.1:9080"),
                tls: None,
                connection_id: 1,
                listener: yumen_plugin::ListenerNumber::STATIC,
                mapped_port: 0,
            },
            patterns: RoutePatterns { uris: ["/*".into()], host: "" },
            route: RouteInfo {
                id: "1".into(),
                name: "r1".into(),
                service_id: "s1".into(),
                service_name: "svc".into(),
                ..RouteInfo::default()
            },
            owner: "routes/1".to_owned(),
            metadata: None,
            node: NodeFacts { workers: 1, ..NodeFacts::default() },
            carry: Carry::default(),
            upstream_reply: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n".to_owned(),
            objects: None,
            sinks: SinkRegistry::default(),
            receivers: RefCell::default(),
            outcome: ExchangeOutcome::default(),
            registry: PluginRegistry::new(crate::BUILTIN),
        }
    }

    /// Builds a plugin from its settings.
    pub(crate) fn build(&self, name: &str, settings: Value) -> Result<Arc<dyn Plugin>, InvalidSettings> {
        let registered = self.registry.get(name).expect("the plugin is in the list");
        registered.build(settings, &self.setup())
    }

    /// The environment in which plugins are built.
    fn setup(&self) -> PluginBuildContext<'_> {
        PluginBuildContext {
            carry: &self.carry,
            owner: &self.owner,
            metadata: self.metadata.as_ref(),
            node: &self.node,
            objects: self.objects.as_deref(),
            sinks: Some(&self.sinks),
            nested: None,
        }
    }

    /// Parses credentials of an authentication plugin.
    pub(crate) fn credentials(&self, name: &str, settings: Value) -> Result<ConsumerKey, InvalidSettings> {
        let registered = self.registry.get(name).expect("the plugin is in the list");
        registered.consumer_key(settings, &self.setup()).expect("it is an authentication plugin")
    }

    /// Builds a plugin from valid settings.
    pub(crate) fn plugin(&self, name: &str, settings: Value) -> Arc<dyn Plugin> {
        self.build(name, settings).expect("the settings are right")
    }

    /// Adds a consumer without credentials.
    pub(crate) fn add_consumer(&mut self, username: &str) -> Arc<Consumer> {
        self.add_consumer_of(username, None)
    }

    /// Adds a consumer of a group without credentials.
    pub(crate) fn add_consumer_of(&mut self, username: &str, group_id: Option<&str>) -> Arc<Consumer> {
        let consumer = Arc::new(Consumer {
            username: username.into(),
            group_id: group_id.map(Into::into),
            custom_id: None,
            labels: Box::default(),
            written: None,
            plugins: Box::default(),
            switched_off: Box::default(),
        });
        self.consumers.insert(consumer.clone());
        consumer
    }

    /// Adds a consumer with labels, without credentials.
    pub(crate) fn add_labelled_consumer(&mut self, username: &str, labels: &[(&str, &str)]) {
        let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
        self.consumers.insert(Arc::new(Consumer {
            username: username.into(),
            group_id: None,
            custom_id: None,
            labels,
            written: None,
            plugins: Box::default(),
            switched_off: Box::default(),
        }));
    }

    /// Adds credentials of an authentication plugin to a consumer, as a credential object if `credential_id`
    /// is set.
    pub(crate) fn add_key(
        &mut self,
        consumer: &Arc<Consumer>,
        name: &'static str,
        settings: Value,
        credential_id: Option<&str>,
    ) {
        let ConsumerKey { key, auth, vouched_fields } =
            self.credentials(name, settings).expect("the settings are right");
        let identity = ConsumerIdentity {
            consumer: consumer.clone(),
            credential_id: credential_id.map(Into::into),
            auth,
            vouched_fields,
        };
        self.consumers.insert_key(name, &key, Arc::new(identity));
    }

    /// An exchange after routing. `request` is a head with `\n` or CRLF line ends; the empty line is
    /// optional, and `Host: test.com` is added if absent.
    pub(crate) fn exchange(&self, request: &str) -> Exchange<'_> {
        let (head, _) = read_request(request);
        let mut ex = Exchange::new(head, &self.client, self.host.clock(), &self.host, &self.consumers);
        ex.route.info = Some(&self.route);
        (ex.route.uris, ex.route.uri_index) = (&self.patterns.uris, 0);
        ex.route.host = self.patterns.host;
        ex
    }

    /// Runs a request through one plugin and, if it passes, to the upstream.
    pub(crate) fn run(&self, plugin: &Arc<dyn Plugin>, request: &str) -> TestReply {
        self.run_all(std::slice::from_ref(plugin), request)
    }

    /// Runs a request through plugins in this order.
    pub(crate) fn run_all(&self, plugins: &[Arc<dyn Plugin>], request: &str) -> TestReply {
        let mut ex = self.exchange(request);
        let answer = self.admit(plugins, &mut ex, request);
        let tap = ex.new_request_tap().map(|mut tap| {
            tap.take(&read_request(request).1);
            tap
        });
        ex.set_request_tap(tap);
        self.finish(plugins, ex, answer)
    }

    /// Runs the rewrite and access phases; returns the local response of a plugin.
    pub(crate) fn admit(
        &self,
        plugins: &[Arc<dyn Plugin>],
        ex: &mut Exchange<'_>,
        request: &str,
    ) -> Option<LocalResponse> {
        for phase in [PhaseSet::REWRITE, PhaseSet::ACCESS] {
            for plugin in plugins.iter().filter(|plugin| plugin.phases().has(phase)) {
                if let Some(response) = run_phase(plugin.as_ref(), phase, ex, request) {
                    return Some(response);
                }
            }
        }
        None
    }

    /// Runs the phases from the upstream request to the end of the exchange.
    pub(crate) fn finish(
        &self,
        plugins: &[Arc<dyn Plugin>],
        mut ex: Exchange<'_>,
        answer: Option<LocalResponse>,
    ) -> TestReply {
        let mut reply = TestReply::default();
        let of = |phase| plugins.iter().filter(move |plugin| plugin.phases().has(phase));
        let (mut head, mut body) = match answer {
            Some(response) => local_head(response),
            None => {
                of(PhaseSet::UPSTREAM_REQUEST)
                    .for_each(|plugin| plugin.upstream_request(&mut UpstreamRequestPhase::new(&mut ex)));
                reply.upstream = Some(upstream_lines(&ex.request));
                let (head, body) = self.upstream_answer();
                ex.endpoint.status = head.status;
                (head, body)
            }
        };
        ex.response.status = head.status;
        for (name, value) in ex.response.fields.iter() {
            head.fields.set(std::str::from_utf8(name).expect("names are ASCII"), value);
        }
        for plugin in of(PhaseSet::RESPONSE_HEAD) {
            ex.response.expose_fields(head.fields.clone());
            plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut head);
        }
        ex.choose_coding(&mut head);
        ex.response.status = head.status;
        let whole = |data| BodyChunk { data, last: true, pause: false, ..BodyChunk::default() };
        if ex.response.edits_body() {
            for plugin in of(PhaseSet::RESPONSE_BODY) {
                body = plugin.response_body(&mut ResponseBodyPhase::new(&mut ex), whole(body)).data;
            }
            body = ex.code(whole(body));
        }
        ex.response.expose_fields(head.fields.clone());
        let tap = ex.new_response_tap().map(|mut tap| {
            tap.take(&body);
            tap
        });
        ex.set_response_tap(tap);
        let outcome = ExchangeOutcome { status: head.status, ..self.outcome };
        for plugin in of(PhaseSet::PREPARE_LOG) {
            plugin.prepare_log(&mut LogPreparation::new(&mut ex));
        }
        of(PhaseSet::LOG).for_each(|plugin| plugin.log(&ex, &outcome));
        reply.status = head.status;
        reply.fields = lines(&head.fields);
        reply.body = String::from_utf8_lossy(&body).into_owned();
        reply.raw = body;
        reply.slept = self.host.slept.take();
        reply
    }

    /// The requests that senders would make of the entries since the last call.
    pub(crate) fn sink_requests(&self) -> Vec<SinkRequest> {
        let mut receivers = self.receivers.borrow_mut();
        receivers.extend(self.sinks.take_new().iter().filter_map(|queue| queue.take_receiver()));
        let mut requests = Vec::new();
        for receiver in receivers.iter_mut() {
            let mut chunks = Vec::new();
            let mut cx = Context::from_waker(Waker::noop());
            while let Poll::Ready(Some(chunk)) = receiver.poll_chunk(&mut cx) {
                chunks.push(chunk);
            }
            let entries = chunks.len();
            if entries > 0 {
                let batch = SinkBatch { chunks: &chunks, entries, now: self.host.now() };
                requests.extend(receiver.queue.encoder.requests(&batch));
            }
        }
        requests
    }

    /// The bodies of [`PluginBench::sink_requests`].
    pub(crate) fn sink_bodies(&self) -> Vec<String> {
        let text = |request: SinkRequest| String::from_utf8(request.body.concat()).expect("UTF-8");
        self.sink_requests().into_iter().map(text).collect()
    }

    fn upstream_answer(&self) -> (ResponseHead, Vec<u8>) {
        let bytes = self.upstream_reply.as_bytes();
        let mut head = ResponseHead::default();
        match parse::response(bytes, 0, &HeadLimits::default(), Method::Get, &mut head) {
            Ok(ParsedHead::Head(length)) => (head, bytes[length..].to_vec()),
            other => panic!("the upstream's answer of the test is broken: {other:?}"),
        }
    }
}

/// The response of a plugin in one phase, including waits and buffering of the body.
fn run_phase(
    plugin: &dyn Plugin,
    phase: PhaseSet,
    ex: &mut Exchange<'_>,
    request: &str,
) -> Option<LocalResponse> {
    for _ in 0..2 {
        let step = if phase == PhaseSet::REWRITE { plugin.rewrite(ex) } else { plugin.access(ex) };
        let bytes_max = match settle(step) {
            Step::Continue => return None,
            Step::Respond(response) => return Some(response),
            Step::NeedBody { bytes_max } => bytes_max,
            Step::Wait(_) => unreachable!("settle waits"),
        };
        let (_, body) = read_request(request);
        if body.len() > bytes_max {
            return Some(LocalResponse::status(413));
        }
        ex.body.buffered = Some(body.into());
    }
    panic!("the plugin asks for the body though it was given");
}

fn settle(mut step: Step<'_>) -> Step<'_> {
    while let Step::Wait(future) = step {
        step = ready(future);
    }
    step
}

/// The result of a future that is ready at once, as all futures of [`ManualHost`] are.
pub(crate) fn ready<T>(mut future: Pin<Box<dyn Future<Output = T> + '_>>) -> T {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("the plugin waits for something the bench does not have"),
    }
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("a socket address")
}

fn read_request(text: &str) -> (RequestHead, Vec<u8>) {
    let text = text.replace("\r\n", "\n");
    let (top, body) = text.split_once("\n\n").unwrap_or((text.trim_end_matches('\n'), ""));
    let mut bytes = top.replace('\n', "\r\n");
    if !bytes.to_ascii_lowercase().contains("\r\nhost:") {
        bytes.push_str("\r\nHost: test.com");
    }
    if !body.is_empty() && !bytes.to_ascii_lowercase().contains("\r\ncontent-length:") {
        bytes.push_str(&format!("\r\nContent-Length: {}", body.len()));
    }
    bytes.push_str("\r\n\r\n");
    let mut head = RequestHead::default();
    match parse::request(bytes.as_bytes(), 0, &HeadLimits::default(), &mut head) {
        Ok(ParsedHead::Head(_)) => (head, body.as_bytes().to_vec()),
        other => panic!("the request of the test is broken: {other:?} in {bytes:?}"),
    }
}

fn local_head(response: LocalResponse) -> (ResponseHead, Vec<u8>) {
    let mut head = ResponseHead::default();
    head.set_status(response.status);
    head.fields.extend(response.fields());
    (head, response.body.to_vec())
}

fn upstream_lines(request: &RequestHead) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let first = format!("{} {}", text(request.method_name()), text(request.upstream_target()));
    std::iter::once(first).chain(lines(&request.fields)).collect()
}

fn lines(fields: &Fields) -> Vec<String> {
    let line =
        |(name, value)| format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value));
    fields.iter().map(line).collect()
}
