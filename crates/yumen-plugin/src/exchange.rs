//! One request and its response, as plugins see it.

use std::any::Any;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use yumen_base::Now;
use yumen_http::{Fields, Framing, RequestHead};

use crate::plugin::LocalFuture;
#[cfg(doc)]
use crate::plugin::Plugin;
use crate::{
    BacktrackBudget, BacktrackLimitExceeded, BufferedBody, CodingOffers, Consumer, ConsumerIdentity,
    ConsumerIndex, Offload, OffloadJob, PluginInstance, ResponseTranslator, SharedOutbound, SubrequestFault,
    SubrequestResponse, SubrequestSpec, TlsInfo, UpstreamSlot,
};

/// What a plugin may ask of the worker that runs it: the one way to wait or to draw lots.
pub trait PluginHost {
    /// Done after `delay`.
    fn sleep(&self, delay: Duration) -> LocalFuture<'static, ()>;
    /// A random number, different each time.
    fn random(&self) -> u64;
    /// The worker's number, from 0 up.
    fn worker(&self) -> usize;
    /// The exact time now, for plugins that measure; others use [`Exchange::now`].
    fn clock(&self) -> Now;
    /// The way out to others, where the worker has one: one that only thinks requests through has none.
    fn outbound(&self) -> Option<SharedOutbound> {
        None
    }
    /// Runs a job on so many bytes beside the worker, where the host has threads for that. Called through [`compute`](crate::compute).
    fn offload(&self, _bytes: usize, job: OffloadJob) -> Offload {
        Offload::Inline(job)
    }
    /// Asks an upstream; `None` where the worker has no way to, as one that only thinks requests through.
    fn ask(
        &self,
        _question: SubrequestSpec,
    ) -> Option<LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>>> {
        None
    }
}

/// A piece of a body on its way; `None` where it could not be made.
pub type DeferredBody = LocalFuture<'static, Option<Vec<u8>>>;

/// Who is at the other end of the connection.
#[derive(Debug, Clone)]
pub struct ClientInfo {
    /// The peer's address.
    pub peer: SocketAddr,
    /// The listener's address, as the client reached it.
    pub local: SocketAddr,
    /// What TLS told; `None` on a plain connection.
    pub tls: Option<TlsInfo>,
    /// Number of the connection in this process.
    pub connection: u64,
}

impl ClientInfo {
    /// `https` or `http`.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// What plugins and logs may know of the route that matched.
#[derive(Debug, Clone, Default)]
pub struct RouteInfo {
    /// Its id.
    pub id: Box<str>,
    /// Its name, empty where it has none.
    pub name: Box<str>,
    /// Its service's id, empty where it has none.
    pub service_id: Box<str>,
    /// Its service's name, empty where it has none.
    pub service_name: Box<str>,
}

/// What is known of a stream: a connection, or a session of datagrams, that carries no HTTP for us.
#[derive(Debug, Clone, Default)]
pub struct StreamInfo {
    /// `tcp`, `tls`, `tls_passthrough` or `udp`.
    pub protocol: &'static str,
    /// The name an MQTT client gives itself.
    pub mqtt_client_id: Option<Box<str>>,
}

/// What plugins decided about the way to the upstream.
#[derive(Debug, Clone, Default)]
pub struct UpstreamOverride {
    /// The `PluginHost` to send, instead of what the upstream's `pass_host` says.
    pub host: Option<Box<[u8]>>,
    /// `http` or `https`, instead of the upstream's scheme.
    pub scheme: Option<&'static str>,
    /// The slot of the upstream to ask instead of the route's.
    pub instead: Option<u32>,
}

/// A copy of the request for another upstream; nobody waits for its answer.
#[derive(Debug, Clone)]
pub struct MirrorTarget {
    /// Who gets it.
    pub upstream: UpstreamSlot,
    /// The path it asks for, instead of the request's.
    pub path: Option<Arc<str>>,
    /// Whether that stands before the request's path instead.
    pub is_prefix: bool,
}

/// One request and its response, or one stream, whose request is empty.
///
/// `'s` is the life of the snapshot it runs under: routes, consumers and plugins are borrowed from
/// it, so an exchange never sees two configurations and counts no references.
pub struct Exchange<'s> {
    /// The request; edits go upstream. Boxed, because heads are handed on and kept for the next request.
    pub request: Box<RequestHead>,
    /// Who asks.
    pub client: &'s ClientInfo,
    /// What is known of the stream, where it is one and not a request.
    pub stream: Option<StreamInfo>,
    /// The client's address as rules see it.
    pub remote_ip: IpAddr,
    /// The client's port as rules see it; 0 where nobody told it with the address.
    pub remote_port: u16,
    /// When the request's head was complete.
    pub now: Now,
    /// What the worker can do for a plugin.
    pub host: &'s dyn PluginHost,
    /// The snapshot's consumers.
    pub consumers: &'s ConsumerIndex,
    /// The route that matched, if any did.
    pub route: Option<&'s RouteInfo>,
    /// The route's path patterns, and which of them matched. The pattern itself is looked up only for who asks:
    /// see [`Exchange::matched_uri`].
    pub matched: (&'s [Box<str>], usize),
    /// The host pattern that matched, empty if none did.
    pub matched_host: &'s str,
    /// Path parameters: name and the range of [`RequestHead::routed_path`] they matched.
    pub path_params: Vec<(&'s str, std::ops::Range<usize>)>,
    /// The consumer an authentication plugin found.
    pub consumer: Option<&'s Consumer>,
    /// The id of the credential that led to it; empty where it has none.
    pub credential_id: &'s str,
    /// What plugins decided about the way to the upstream.
    pub upstream: UpstreamOverride,
    /// The endpoint chosen, once one was.
    pub endpoint: Option<SocketAddr>,
    /// Its host as its node writes it, empty before; not told of streams.
    pub endpoint_host: &'s str,
    /// The request body, once a plugin asked for it.
    pub body: Option<BufferedBody>,
    /// How long it was as it came, whatever became of it since.
    pub body_read_bytes: u64,
    /// The longest request body of this exchange, where a plugin set one: instead of the node's. 0 is none.
    pub body_bytes_max: Option<u64>,
    /// When all must be over, in milliseconds of the monotonic clock; 0 is never. A plugin sets it, in
    /// rewrite or access; from then to the upstream's phases it only gets earlier.
    pub deadline_ms: u64,
    /// Fields that go into the answer, whoever makes it: set in any phase before the response head.
    /// Variables read [`Exchange::answer_fields`].
    pub response_fields: Fields,
    /// Whether a plugin changes the body of the answer: set by it in the response head phase. Otherwise
    /// the body passes without being looked at.
    pub edits_body: bool,
    /// Whether the client made a call of gRPC and understands no other answer, where a plugin knows that
    /// better than the request's head tells it.
    pub is_call: Option<bool>,
    /// A copy of the request that shall be sent elsewhere, with the body where that was buffered.
    pub mirror: Option<Box<MirrorTarget>>,
    /// Translates the answer, where the endpoint speaks another protocol than the client.
    pub translate: Option<Box<dyn ResponseTranslator>>,
    /// A piece of the answer's body that a plugin still computes.
    deferred_body: Option<DeferredBody>,
    /// Content codings offered for the answer.
    pub(crate) codings: Option<Box<CodingOffers>>,
    /// Status of the answer, once known; 0 before.
    pub status: u16,
    /// Status the endpoint gave, once known; 0 before.
    pub upstream_status: u16,
    /// Bytes sent to the client, once the exchange is over; 0 before.
    pub sent_bytes: u64,
    /// Those of them behind the head.
    pub sent_body_bytes: u64,
    /// Whether a pattern was given up that something depended on.
    is_undecided: Cell<bool>,
    /// Whether the exchange is undecided since its body cannot be read as readers of its type agree on.
    has_unreadable_body: Cell<bool>,
    /// Whether `$server_port` was read, so that the answer may hang on it.
    requested_port: Cell<bool>,
    /// What its patterns may still look at where they backtrack.
    pub budget: BacktrackBudget,
    /// What `$request_id` is where no field tells it; drawn when first asked for.
    own_id: OnceCell<[u64; 2]>,
    /// The fields of the answer as far as it has come, where somebody looks into them. Boxed, as that is rare.
    answer: Option<Box<Fields>>,
    notes: Vec<Box<dyn Any>>,
    /// Verdicts of `_meta.filter`, reached once per plugin.
    filtered: Vec<(*const PluginInstance, bool)>,
}

impl<'s> Exchange<'s> {
    /// Whether who looks at up to so many bytes of the body has to ask for it ([`Step::NeedBody`](crate::Step)): it
    /// was not read, or another read more, which that refuses.
    pub fn lacks_body(&self, bytes_max: usize) -> bool {
        match &self.body {
            None => self.request.framing != Framing::None,
            Some(body) => body.len() > bytes_max,
        }
    }

    /// An exchange at its beginning, before a route was looked for.
    pub fn new(
        request: impl Into<Box<RequestHead>>,
        client: &'s ClientInfo,
        now: Now,
        host: &'s dyn PluginHost,
        consumers: &'s ConsumerIndex,
    ) -> Exchange<'s> {
        Exchange {
            request: request.into(),
            client,
            stream: None,
            remote_ip: client.peer.ip().to_canonical(),
            remote_port: client.peer.port(),
            now,
            host,
            consumers,
            route: None,
            matched: (&[], 0),
            matched_host: "",
            path_params: Vec::new(),
            consumer: None,
            credential_id: "",
            upstream: UpstreamOverride::default(),
            endpoint: None,
            endpoint_host: "",
            body: None,
            body_read_bytes: 0,
            body_bytes_max: None,
            deadline_ms: 0,
            response_fields: Fields::default(),
            edits_body: false,
            is_call: None,
            mirror: None,
            translate: None,
            deferred_body: None,
            codings: None,
            status: 0,
            upstream_status: 0,
            sent_bytes: 0,
            sent_body_bytes: 0,
            is_undecided: Cell::new(false),
            has_unreadable_body: Cell::new(false),
            requested_port: Cell::new(false),
            budget: BacktrackBudget::default(),
            own_id: OnceCell::new(),
            answer: None,
            notes: Vec::new(),
            filtered: Vec::new(),
        }
    }

    /// What a pattern found. Where it was given up that is nothing, and the exchange is undecided from then on.
    pub fn decided<T: Default>(&self, found: Result<T, BacktrackLimitExceeded>) -> T {
        found.unwrap_or_else(|BacktrackLimitExceeded| {
            self.is_undecided.set(true);
            T::default()
        })
    }

    /// No value, and an exchange that is undecided from then on: its body is malformed or ambiguous, and counts neither
    /// as one with the value nor as one without.
    pub(crate) fn undecided_by_body<T>(&self) -> Option<T> {
        self.is_undecided.set(true);
        self.has_unreadable_body.set(true);
        None
    }

    /// Whether the request names more than one media type, so that readers may take its body for different things.
    pub fn has_ambiguous_content_type(&self) -> bool {
        crate::vars::has_ambiguous_type(self)
    }

    /// Whether the body left the exchange undecided, which is the fault of the client.
    pub fn has_unreadable_body(&self) -> bool {
        self.has_unreadable_body.get()
    }

    /// Whether a pattern was given up, so that nobody knows which route is meant or what a guard would say: such a
    /// request is refused before another plugin is asked, or anything is sent.
    pub fn is_undecided(&self) -> bool {
        self.is_undecided.get()
    }

    /// The port of the listener it came in by.
    pub(crate) fn server_port(&self) -> u16 {
        self.requested_port.set(true);
        self.client.local.port()
    }

    /// Whether anyone read `$server_port` so far.
    pub fn requested_port(&self) -> bool {
        self.requested_port.get()
    }

    /// Asks it something that decides nothing about it: what is given up there does not count.
    pub fn aside<T>(&mut self, ask: impl FnOnce(&mut Self) -> T) -> T {
        let (is_undecided, budget) = (self.is_undecided.clone(), self.budget.clone());
        let has_unreadable_body = self.has_unreadable_body.clone();
        let told = ask(self);
        (self.is_undecided, self.budget) = (is_undecided, budget);
        self.has_unreadable_body = has_unreadable_body;
        told
    }

    /// The value of a path parameter, decoded.
    pub fn path_param(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let (_, range) = self.path_params.iter().find(|(param, _)| *param == name)?;
        self.request.routed_part(range.clone())
    }

    /// The path pattern that matched, empty if none did.
    pub fn matched_uri(&self) -> &'s str {
        let (uris, at) = self.matched;
        uris.get(at).map_or("", |uri| uri)
    }

    /// The fields of the answer as variables see them: in the response head phase those it has when the plugin is
    /// called, later those that were sent, before it what plugins left for it so far.
    pub(crate) fn answer_fields(&self) -> &Fields {
        self.answer.as_deref().unwrap_or(&self.response_fields)
    }

    /// Has variables see these fields of the answer from now on. They cost a copy: only for who looks into them
    /// ([`Reads::answer`](crate::Reads)).
    pub fn show_answer(&mut self, fields: Fields) {
        self.answer = Some(Box::new(fields));
    }

    /// Says who the client is and tells the upstream, as APISIX does: `X-Consumer-Username`,
    /// `X-Credential-Identifier`, `X-Consumer-Custom-ID`. What the client says under these names, or under some that
    /// an application may take for them, goes.
    pub fn identify(&mut self, consumer: &'s Consumer, credential_id: Option<&'s str>) {
        self.consumer = Some(consumer);
        self.credential_id = credential_id.unwrap_or("");
        let fields = &mut self.request.fields;
        fields.set_only("X-Consumer-Username", consumer.username.as_bytes());
        match credential_id {
            Some(id) => fields.set_only("X-Credential-Identifier", id.as_bytes()),
            None => drop(fields.remove_equivalent("X-Credential-Identifier")),
        }
        match &consumer.custom_id {
            Some(id) => fields.set_only("X-Consumer-Custom-ID", id.as_bytes()),
            None => drop(fields.remove_equivalent("X-Consumer-Custom-ID")),
        }
    }

    /// [`Exchange::identify`] with what a key led to.
    pub fn identify_as(&mut self, identity: &'s ConsumerIdentity) {
        self.identify(&identity.consumer, identity.credential_id.as_deref());
    }

    /// A number no other exchange is likely to have, the same whenever it is asked for.
    pub(crate) fn own_id(&self) -> [u64; 2] {
        *self.own_id.get_or_init(|| [self.host.random(), self.host.random()])
    }

    /// Has a piece of the answer's body wait for a computation, called in [`Plugin::response_body`]: the result stands
    /// for the data of the chunk that the plugin returns, and `None` breaks the answer off. The plugins behind this one
    /// see the piece when it is there.
    pub fn defer_body(&mut self, computing: DeferredBody) {
        self.deferred_body = Some(computing);
    }

    /// Takes the computation that the plugin called last has left.
    pub fn take_deferred_body(&mut self) -> Option<DeferredBody> {
        self.deferred_body.take()
    }

    /// Leaves a value for a later phase of the same plugin; it is dropped with the exchange, however
    /// that ends, so a guard releases what it holds.
    pub fn leave<T: 'static>(&mut self, note: T) {
        self.notes.push(Box::new(note));
    }

    /// The values of type `T` that were left, the last one first: a plugin may stand in a global rule and in the
    /// route's chain.
    pub fn notes<T: 'static>(&self) -> impl Iterator<Item = &T> {
        self.notes.iter().rev().filter_map(|note| note.downcast_ref())
    }

    /// The last value of type `T` that was left.
    pub fn note<T: 'static>(&self) -> Option<&T> {
        self.notes().next()
    }

    /// The last value of type `T` that was left, for changing.
    pub fn note_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.notes.iter_mut().rev().find_map(|note| note.downcast_mut())
    }

    /// Takes the last value of type `T` that was left.
    pub fn take_extension<T: 'static>(&mut self) -> Option<T> {
        let at = self.notes.iter().rposition(|note| note.is::<T>())?;
        self.notes.remove(at).downcast().ok().map(|note| *note)
    }

    /// Whether `_meta.filter` lets the plugin run in this exchange. The first verdict stands for the whole exchange;
    /// one that skips a stand-in stands for a single phase.
    pub fn admits(&mut self, instance: &PluginInstance) -> bool {
        let Some(filter) = &instance.meta.filter else { return true };
        let key: *const PluginInstance = instance;
        if let Some((_, verdict)) = self.filtered.iter().find(|(known, _)| *known == key) {
            return *verdict;
        }
        let verdict = filter.eval(self);
        // A stand-in runs in an earlier phase than the guard would: the filter may hold once the consumer is known or
        // another plugin has set a field.
        if verdict || !instance.plugin.is_stand_in() {
            self.filtered.push((key, verdict));
        }
        verdict
    }
}
