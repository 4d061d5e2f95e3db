//! One request and its response, as plugins see it.
//!
//! An exchange is a set of parts, one per stage: client and request, route and consumer, upstream, response.
//! The rewrite and access phases change the exchange itself; later phases receive a view ([`phases`]).

mod client;
mod error_rules;
mod evaluation;
pub mod phases;
mod plugin_state;
mod response;
mod route_match;
pub mod timeline;
pub(crate) mod trace;
mod upstream;

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use yumen_base::Now;
use yumen_http::{Fields, Framing, KnownField, RequestHead};

use crate::{
    BacktrackBudget, BacktrackLimitExceeded, BodyTap, BufferedBody, Consumer, ConsumerIdentity,
    ConsumerIndex, ExchangeOutcome, ExchangeTimeline, PluginHost, PluginInstance,
};
pub use client::{ClientInfo, ExchangeClient, ListenerNumber, StreamInfo};
pub use error_rules::{ErrorPageRules, ErrorRules};
use evaluation::EvaluationState;
pub use evaluation::IndecisionCause;
use plugin_state::PluginState;
pub(crate) use response::SentBytes;
pub use response::{DeferredBody, ExchangeResponse, ResponseProtocol};
pub use route_match::{RouteInfo, RouteMatch};
pub use trace::ExchangeTrace;
pub use upstream::{MirrorTarget, OmittedForwarding, SelectedEndpoint, StickyEndpoint, UpstreamSelection};

/// One request and its response, or one stream, whose request is empty.
///
/// `'s` is the lifetime of the snapshot of the exchange. Routes, consumers and plugins are borrowed from it, so
/// an exchange sees one configuration and counts no references.
pub struct Exchange<'s> {
    /// The client and its connection.
    pub client: ExchangeClient<'s>,
    /// The head of the request; edits are forwarded. Boxed, because the worker recycles heads.
    pub request: Box<RequestHead>,
    /// The body of the request.
    pub body: RequestBody,
    /// The time at which the request head was complete.
    pub now: Now,
    /// Services of the worker.
    pub host: &'s dyn PluginHost,
    /// The consumers of the snapshot.
    pub consumers: &'s ConsumerIndex,
    /// The result of routing.
    pub route: RouteMatch<'s>,
    /// The consumer that an authentication plugin has identified.
    pub consumer: Option<&'s Consumer>,
    /// The user that a login plugin has identified, not necessarily a consumer.
    pub external_user: Option<Box<ExternalUser>>,
    /// Choices of plugins about forwarding.
    pub upstream: UpstreamSelection,
    /// The endpoint of the current attempt.
    pub endpoint: SelectedEndpoint<'s>,
    /// The response.
    pub response: ExchangeResponse,
    sent: SentBytes,
    evaluation: EvaluationState,
    plugin_state: PluginState,
}

/// A user of an identity provider.
#[derive(Debug, Clone)]
pub struct ExternalUser {
    /// The identifier: the subject of a token, or the claim that the plugin selects.
    pub id: Box<str>,
    /// All claims.
    pub claims: Arc<Value>,
}

/// The body of a request.
#[derive(Debug, Default)]
pub struct RequestBody {
    /// The whole body, if a plugin or a variable required it; `None` while it is unread.
    pub buffered: Option<BufferedBody>,
    /// Bytes received into the buffer, before plugins replaced the body.
    pub received_bytes: u64,
    /// Maximum size in bytes, instead of the limit of the node; 0 is no limit.
    pub bytes_max: Option<u64>,
}

impl<'s> Exchange<'s> {
    /// An exchange before routing.
    pub fn new(
        request: impl Into<Box<RequestHead>>,
        client: &'s ClientInfo,
        now: Now,
        host: &'s dyn PluginHost,
        consumers: &'s ConsumerIndex,
    ) -> Exchange<'s> {
        Exchange {
            client: ExchangeClient::new(client),
            request: request.into(),
            body: RequestBody::default(),
            now,
            host,
            consumers,
            route: RouteMatch::default(),
            consumer: None,
            external_user: None,
            upstream: UpstreamSelection::default(),
            endpoint: SelectedEndpoint::default(),
            response: ExchangeResponse::default(),
            sent: SentBytes::default(),
            evaluation: EvaluationState::default(),
            plugin_state: PluginState::default(),
        }
    }

    /// Whether a plugin that reads up to `bytes_max` bytes of the body must require it
    /// ([`Step::NeedBody`](crate::Step)): the body is unread, or buffered beyond that limit, which is refused.
    pub fn lacks_body(&self, bytes_max: usize) -> bool {
        match &self.body.buffered {
            None => self.request.framing != Framing::None,
            Some(body) => body.len() > bytes_max,
        }
    }

    /// Whether the request names several media types, so that readers may parse its body differently.
    pub fn has_ambiguous_content_type(&self) -> bool {
        let mut types = self.request.fields.all_known(KnownField::ContentType);
        types.next().is_some_and(|first| !is_one_media_type(first)) || types.next().is_some()
    }

    /// Returns the decoded value of a path parameter.
    pub fn path_param(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let (_, range) = self.route.path_params.iter().find(|(param, _)| *param == name)?;
        self.request.routed_part(range.clone())
    }

    /// Identifies the client and forwards its identity, as APISIX does: `X-Consumer-Username`,
    /// `X-Credential-Identifier`, `X-Consumer-Custom-ID`. Fields of the client with these names, or with names that
    /// an application may equate with them, are removed.
    pub fn identify(&mut self, consumer: &'s Consumer, credential_id: Option<&str>) {
        self.consumer = Some(consumer);
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

    /// [`Exchange::identify`] for the owner of a key.
    pub fn identify_as(&mut self, identity: &'s ConsumerIdentity) {
        self.identify(&identity.consumer, identity.credential_id.as_deref());
    }

    /// Records the outcome for the variables of the log phase.
    pub fn record_outcome(&mut self, outcome: &ExchangeOutcome<'_>) {
        self.sent = SentBytes::from(outcome);
    }

    /// Bytes sent to the client; 0 before the log phase.
    pub(crate) fn sent(&self) -> SentBytes {
        self.sent
    }
}

/// Evaluation of variables, conditions and patterns.
impl Exchange<'_> {
    /// The number of bytes that patterns with backtracking may still read.
    pub fn budget(&self) -> &BacktrackBudget {
        &self.evaluation.budget
    }

    /// Returns the result of a match. An aborted match counts as none and leaves the exchange undecided.
    pub fn decided<T: Default>(&self, result: Result<T, BacktrackLimitExceeded>) -> T {
        self.evaluation.settle(result)
    }

    /// Returns `None` and leaves the exchange undecided: its body is malformed or ambiguous, so a condition on the
    /// value neither holds nor fails.
    pub(crate) fn undecided_by_body<T>(&self) -> Option<T> {
        self.evaluation.note_unreadable_body();
        None
    }

    /// The reason why a condition is undecided, if one is. The route and the verdict of its guards are then
    /// unknown: the request is refused before another plugin runs or a byte is sent.
    pub fn indecision(&self) -> Option<IndecisionCause> {
        self.evaluation.indecision()
    }

    /// Whether a condition is undecided.
    pub fn is_undecided(&self) -> bool {
        self.indecision().is_some()
    }

    /// The port of the listener.
    pub(crate) fn server_port(&self) -> u16 {
        self.evaluation.note_port_read();
        self.client.connection.dialed_port()
    }

    /// Whether `$server_port` was read.
    pub fn requested_port(&self) -> bool {
        self.evaluation.has_read_port()
    }

    /// Runs an evaluation that decides nothing about the exchange: neither its use of the budget nor its indecision
    /// counts.
    pub fn aside<T>(&mut self, ask: impl FnOnce(&mut Self) -> T) -> T {
        let checkpoint = self.evaluation.checkpoint();
        let result = ask(self);
        self.evaluation.restore(checkpoint);
        result
    }

    /// Random bits that identify the exchange; constant after the first call.
    pub(crate) fn own_id(&self) -> [u64; 2] {
        self.evaluation.request_id(|| [self.host.random(), self.host.random()])
    }
}

/// Bodies for loggers.
impl Exchange<'_> {
    /// Has the begin of the request body copied for the log phase, in the rewrite and access phases. The largest
    /// request wins. A buffered body is read in place.
    pub fn tap_request_body(&mut self, bytes_max: usize) {
        let taps = self.plugin_state.taps.get_or_insert_default();
        taps.request_bytes_max = taps.request_bytes_max.max(bytes_max);
    }

    pub(crate) fn tap_response_body(&mut self, bytes_max: usize) {
        let taps = self.plugin_state.taps.get_or_insert_default();
        taps.response_bytes_max = taps.response_bytes_max.max(bytes_max);
    }

    /// Whether a plugin has a body copied.
    #[inline]
    pub fn has_taps(&self) -> bool {
        self.plugin_state.taps.is_some()
    }

    /// A new tap for the request body that is about to be forwarded, if a plugin required one.
    #[inline]
    pub fn new_request_tap(&self) -> Option<Box<BodyTap>> {
        let bytes_max = self.plugin_state.taps.as_ref()?.request_bytes_max;
        (bytes_max > 0).then(|| Box::new(BodyTap::new(bytes_max, self.host.tap_budget())))
    }

    /// A new tap for the response body, if a plugin required one.
    #[inline]
    pub fn new_response_tap(&self) -> Option<Box<BodyTap>> {
        let bytes_max = self.plugin_state.taps.as_ref()?.response_bytes_max;
        (bytes_max > 0).then(|| Box::new(BodyTap::new(bytes_max, self.host.tap_budget())))
    }

    /// Stores the tap of the request body after the exchange.
    #[inline]
    pub fn set_request_tap(&mut self, tap: Option<Box<BodyTap>>) {
        if let (Some(tap), Some(taps)) = (tap, &mut self.plugin_state.taps) {
            taps.request = Some(tap);
        }
    }

    /// Stores the tap of the response body after the exchange.
    #[inline]
    pub fn set_response_tap(&mut self, tap: Option<Box<BodyTap>>) {
        if let (Some(tap), Some(taps)) = (tap, &mut self.plugin_state.taps) {
            taps.response = Some(tap);
        }
    }

    /// Copies bytes of a response body that passes through plugins or is made by the gateway.
    #[inline]
    pub fn tap_response_data(&mut self, data: &[u8]) {
        if self.plugin_state.taps.is_some() {
            self.tap_data(data);
        }
    }

    #[cold]
    fn tap_data(&mut self, data: &[u8]) {
        if self.plugin_state.taps.as_ref().is_some_and(|taps| taps.response.is_none()) {
            let tap = self.new_response_tap();
            self.set_response_tap(tap);
        }
        if let Some(tap) = self.plugin_state.taps.as_mut().and_then(|taps| taps.response.as_mut()) {
            tap.take(data);
        }
    }

    /// The begin of the request body, in the log phase.
    pub fn tapped_request(&self) -> Option<&[u8]> {
        Some(self.plugin_state.taps.as_ref()?.request.as_ref()?.bytes())
    }

    /// The begin of the response body before the coding of the gateway, in the log phase.
    pub fn tapped_response(&self) -> Option<&[u8]> {
        Some(self.plugin_state.taps.as_ref()?.response.as_ref()?.bytes())
    }

    /// The response fields that were sent, in the log phase of a plugin that reads them
    /// ([`Plugin::reads`](crate::Plugin::reads)).
    pub fn sent_fields(&self) -> &Fields {
        self.response.visible_fields()
    }
}

/// State of plugins.
impl Exchange<'_> {
    /// Leaves a value for a later phase of the same plugin. The value is dropped with the exchange, however that
    /// ends, so a guard releases its resource.
    pub fn leave<T: 'static>(&mut self, note: T) {
        self.plugin_state.leave(note);
    }

    /// The values of type `T`, the latest first: a global rule and the route may have the same plugin.
    pub fn notes<T: 'static>(&self) -> impl Iterator<Item = &T> {
        self.plugin_state.notes()
    }

    /// The latest value of type `T`.
    pub fn note<T: 'static>(&self) -> Option<&T> {
        self.notes().next()
    }

    /// The latest value of type `T`.
    pub fn note_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.plugin_state.note_mut()
    }

    /// Removes and returns the latest value of type `T`.
    pub fn take_extension<T: 'static>(&mut self) -> Option<T> {
        self.plugin_state.take()
    }

    /// Has the times of plugins and attempts recorded for the log phase, from the plugins after this one on.
    pub fn record_timeline(&mut self) {
        self.plugin_state.requires_timeline = true;
    }

    /// Whether a plugin has called [`Exchange::record_timeline`].
    #[inline]
    pub fn requires_timeline(&self) -> bool {
        self.plugin_state.requires_timeline
    }

    /// Provides the timeline, before the log phase.
    pub fn set_timeline(&mut self, timeline: Box<ExchangeTimeline>) {
        self.plugin_state.timeline = Some(timeline);
    }

    /// The timeline, in the log phase of a plugin that required it.
    pub fn timeline(&self) -> Option<&ExchangeTimeline> {
        self.plugin_state.timeline.as_deref()
    }

    /// Whether `_meta.filter` admits the exchange to the plugin. The first verdict applies to the whole exchange;
    /// one that skips a stand-in applies to a single phase.
    pub fn admits(&mut self, instance: &PluginInstance) -> bool {
        let Some(filter) = &instance.meta.filter else { return true };
        if let Some(verdict) = self.plugin_state.filter_verdict(instance) {
            return verdict;
        }
        let verdict = filter.eval(self);
        // A stand-in runs in an earlier phase than the guard would: the filter may hold once the consumer is known or
        // another plugin has set a field.
        if verdict || !instance.plugin.is_stand_in() {
            self.plugin_state.keep_filter_verdict(instance, verdict);
        }
        verdict
    }
}

/// Whether a `Content-Type` has exactly one media type.
fn is_one_media_type(content_type: &[u8]) -> bool {
    let mut is_quoted = false;
    let mut is_escaped = false;
    content_type.iter().all(|byte| {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            // A comma joins two field lines (RFC 9110 §5.3), unless a quoted parameter contains it.
            b',' => return is_quoted,
            _ => {}
        }
        true
    })
}
