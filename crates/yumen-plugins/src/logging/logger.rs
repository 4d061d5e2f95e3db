//! The plugin around a [`LoggerKind`]: forms, conditions and taps by phase, and the dry run.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    BatchPolicy, ConditionExpr, DryRunResult, Exchange, ExchangeOutcome, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, ResponseHead, ResponseHeadPhase, ServedTraffic, SinkAddress,
    SinkBatch, SinkEncoder, SinkHandle, SinkRequest, SinkSpec, Step, VarInputs,
};

use super::entry::{DEFAULT_MEMBERS, LogEntry, LogEntryForm};
use super::format::{FormatFacts, LogFormat};
use super::settings::{BatchSettings, BodySettings, FormatSettings, LoggerSettings, batch_policy};
use crate::decoding::ContentCoding;

/// One logger plugin.
pub(crate) trait LoggerKind: Send + Sync + Sized + 'static {
    /// Name of the plugin.
    const NAME: &'static str;
    /// Priority of the plugin.
    const PRIORITY: i32;
    /// Supported traffic.
    const SERVES: ServedTraffic = ServedTraffic::Http;
    /// `route_id` of an exchange without a route.
    const UNMATCHED_ROUTE: Option<&'static str> = None;
    /// Settings.
    type Config: DeserializeOwned + JsonSchema;

    /// Builds the logger.
    fn build(
        config: Self::Config,
        setup: &PluginBuildContext<'_>,
    ) -> Result<LoggerParts<Self>, InvalidSettings>;

    /// Appends the text of one entry; nothing for an exchange that is not logged.
    fn render(&self, entry: &LogEntry<'_, '_>, out: &mut Vec<u8>) {
        entry.write_json(out);
    }

    /// Whether the exchange is logged at all.
    fn admits(&self, _ex: &Exchange<'_>) -> bool {
        true
    }

    /// Whether entries have the JSON of [`LogEntry::write_json`].
    fn uses_form(&self) -> bool {
        true
    }
}

/// A logger that is built, and its sink.
pub(crate) struct LoggerParts<K> {
    /// The logger.
    pub(crate) kind: K,
    /// The form of entries.
    pub(crate) format: FormatSettings,
    /// Bodies in entries.
    pub(crate) bodies: BodySettings,
    /// The sink.
    pub(crate) sink: SinkPlan,
}

/// A sink before it is opened.
pub(crate) struct SinkPlan {
    /// `name` of the batch settings.
    pub(crate) name: String,
    /// The address.
    pub(crate) address: SinkAddress,
    /// The rules for batches.
    pub(crate) policy: BatchPolicy,
    /// The payload form.
    pub(crate) encoder: Arc<dyn SinkEncoder>,
    /// Settings of the encoder, by which sinks of one address differ.
    pub(crate) encoder_settings: String,
}

impl BatchSettings {
    /// The plan of a sink. Sinks of one address differ by the settings of their encoders, which `Debug` writes.
    pub(crate) fn sink<E: SinkEncoder + Debug + 'static>(
        &self,
        name: String,
        address: SinkAddress,
        encoder: E,
        setup: &PluginBuildContext<'_>,
    ) -> SinkPlan {
        SinkPlan {
            name,
            address,
            policy: batch_policy(self, setup.metadata),
            encoder_settings: format!("{encoder:?}"),
            encoder: Arc::new(encoder),
        }
    }
}

/// The request that sends a whole batch to an HTTP server.
pub(crate) fn post(
    batch: &SinkBatch<'_>,
    target: &str,
    fields: Vec<(String, String)>,
    body: Vec<Bytes>,
) -> SinkRequest {
    SinkRequest { method: "POST", target: target.to_owned(), fields, body, entries: batch.entries }
}

impl LoggerSettings {
    /// A logger with these settings.
    pub(crate) fn parts<K>(self, kind: K, sink: SinkPlan) -> LoggerParts<K> {
        LoggerParts { kind, format: self.format, bodies: self.bodies, sink }
    }
}

/// Bodies of one direction.
struct BodyRule {
    bytes_max: usize,
    condition: Option<ConditionExpr>,
}

impl BodyRule {
    fn build(
        is_on: bool,
        path: &str,
        condition: Option<&Vec<Vec<Value>>>,
        bytes_max: usize,
    ) -> Result<Option<BodyRule>, InvalidSettings> {
        let parse = |written: &Vec<Vec<Value>>| {
            let list = written.iter().cloned().map(Value::Array).collect();
            ConditionExpr::parse(&Value::Array(list)).map_err(|why| {
                InvalidSettings::at(path, format!("failed to validate the '{path}' expression: {why}"))
            })
        };
        // Parsed even if the body is left out: APISIX refuses it then too.
        let condition = condition.map(parse).transpose()?;
        Ok(is_on.then_some(BodyRule { bytes_max, condition }))
    }

    fn holds(&self, ex: &Exchange<'_>) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.eval(ex))
    }
}

/// The bodies that one logger takes from one exchange.
struct TakenBodies {
    /// The address of the logger: an exchange may have several.
    logger: usize,
    request: bool,
    response: bool,
    coding: Option<ContentCoding>,
}

/// A logger plugin.
pub(crate) struct LoggerPlugin<K> {
    kind: K,
    /// `None` for a stream logger without `log_format`.
    form: LogEntryForm,
    inputs: VarInputs,
    needs_request_body: bool,
    /// Limit of `$request_body`.
    request_bytes_max: usize,
    request_body: Option<BodyRule>,
    response_body: Option<BodyRule>,
    sink: Option<SinkHandle>,
    /// The sink in words, for the dry run.
    target: String,
}

impl<K: LoggerKind> PluginFactory for LoggerPlugin<K> {
    const NAME: &'static str = K::NAME;
    const PRIORITY: i32 = K::PRIORITY;
    const SERVES: ServedTraffic = K::SERVES;
    type Config = K::Config;

    fn build(config: K::Config, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let LoggerParts { kind, format, bodies, sink } = K::build(config, setup)?;
        let mut facts = FormatFacts::default();
        let form = build_form(&format, setup, &mut facts)?;
        if kind.uses_form() && matches!(form, LogEntryForm::Default(_)) {
            facts.inputs = facts.inputs | LogEntryForm::DEFAULT_INPUTS;
        }
        let request_body = BodyRule::build(
            bodies.include_req_body,
            "include_req_body_expr",
            bodies.include_req_body_expr.as_ref(),
            bodies.max_req_body_bytes,
        )?;
        let response_body = BodyRule::build(
            bodies.include_resp_body,
            "include_resp_body_expr",
            bodies.include_resp_body_expr.as_ref(),
            bodies.max_resp_body_bytes,
        )?;
        if matches!(form, LogEntryForm::Default(_)) && setup.owner.starts_with("stream_routes/") {
            setup.warn("log_format", "a stream has no default form: it is not logged", "add a log_format");
        }
        let target = describe(&sink);
        let open = |registry: &yumen_plugin::SinkRegistry| {
            let spec = SinkSpec {
                plugin: K::NAME,
                name: sink.name,
                address: sink.address,
                policy: sink.policy,
                encoder: sink.encoder_settings,
            };
            registry.open(spec, sink.encoder)
        };
        Ok(LoggerPlugin {
            kind,
            form,
            inputs: facts.inputs,
            needs_request_body: facts.needs_request_body,
            request_bytes_max: bodies.max_req_body_bytes,
            request_body,
            response_body,
            sink: setup.sinks.map(open),
            target,
        })
    }
}

/// The form by the settings, else by the metadata.
fn build_form(
    settings: &FormatSettings,
    setup: &PluginBuildContext<'_>,
    facts: &mut FormatFacts,
) -> Result<LogEntryForm, InvalidSettings> {
    let of_metadata = |name: &str| setup.metadata?.get(name).and_then(Value::as_object).cloned();
    // An empty format in the metadata is none.
    let common = || of_metadata("log_format").filter(|format| !format.is_empty());
    let compile = |path: &str, format, facts: &mut FormatFacts| {
        let compiled = LogFormat::compile(path, &Value::Object(format), facts)?;
        if facts.is_too_deep {
            setup.warn(path, "objects nested deeper than 5 are left empty", "flatten the format");
        }
        Ok::<_, InvalidSettings>(compiled)
    };
    if let Some(format) = settings.log_format.clone().or_else(common) {
        if settings.log_format_extra.is_some() {
            setup.warn(
                "log_format_extra",
                "without effect beside log_format",
                "add its members to log_format",
            );
        }
        return Ok(LogEntryForm::Custom(compile("log_format", format, facts)?));
    }
    let extra = settings.log_format_extra.clone().or_else(|| of_metadata("log_format_extra"));
    let Some(extra) = extra else { return Ok(LogEntryForm::Default(None)) };
    let mut extra = compile("log_format_extra", extra, facts)?;
    for name in extra.remove(|name| DEFAULT_MEMBERS.contains(&name)) {
        let path = format!("log_format_extra.{name}");
        setup.warn(&path, "members of the default form are not replaced", "use another name");
    }
    Ok(LogEntryForm::Default(Some(extra).filter(|extra| !extra.is_empty())))
}

fn describe(sink: &SinkPlan) -> String {
    match (&sink.address, sink.policy.batch_max_size) {
        (SinkAddress::File { path }, _) => format!("1 line to {path}"),
        (address, 1) => format!("1 entry to {address}, at once"),
        (address, size) => format!("1 entry to {address}, in batches of {size}"),
    }
}

impl<K: LoggerKind> LoggerPlugin<K> {
    fn has_bodies(&self) -> bool {
        self.request_body.is_some() || self.response_body.is_some()
    }

    /// Identifies the logger among those of an exchange.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn taken<'e>(&self, ex: &'e Exchange<'_>) -> Option<&'e TakenBodies> {
        ex.notes::<TakenBodies>().find(|taken| taken.logger == self.number())
    }

    /// The response body for the entry, decoded as far as it was tapped.
    fn response_text<'e>(&self, ex: &'e Exchange<'_>) -> Option<Cow<'e, [u8]>> {
        let rule = self.response_body.as_ref()?;
        let taken = self.taken(ex).filter(|taken| taken.response)?;
        let tapped = ex.tapped_response()?;
        let tapped = &tapped[..tapped.len().min(rule.bytes_max)];
        if tapped.is_empty() {
            return None;
        }
        Some(match taken.coding {
            Some(coding) => Cow::Owned(coding.decode_prefix(tapped, rule.bytes_max)),
            None => Cow::Borrowed(tapped),
        })
    }
}

impl<K: LoggerKind> Plugin for LoggerPlugin<K> {
    fn phases(&self) -> PhaseSet {
        let mut phases = PhaseSet::LOG;
        if self.has_bodies() || self.needs_request_body {
            phases = phases | PhaseSet::ACCESS;
        }
        if self.response_body.is_some() {
            phases = phases | PhaseSet::RESPONSE_HEAD;
        }
        phases
    }

    fn reads(&self) -> VarInputs {
        self.inputs
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let request = self.request_body.as_ref().filter(|rule| rule.holds(ex));
        if let Some(rule) = request {
            ex.tap_request_body(rule.bytes_max);
        }
        if self.needs_request_body {
            ex.tap_request_body(self.request_bytes_max);
        }
        if self.has_bodies() {
            let request = request.is_some();
            ex.leave(TakenBodies { logger: self.number(), request, response: false, coding: None });
        }
        Step::Continue
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        let Some(rule) = self.response_body.as_ref().filter(|rule| rule.holds(ex)) else { return };
        ex.tap_response_body(rule.bytes_max);
        let number = self.number();
        // An unsupported coding is logged as it is.
        let coding = ContentCoding::of(head).ok().flatten();
        match self.taken(ex).is_some() {
            true => {
                if let Some(taken) = ex.notes_mut::<TakenBodies>().find(|taken| taken.logger == number) {
                    (taken.response, taken.coding) = (true, coding);
                }
            }
            // A response ahead of the access phase.
            false => ex.leave(TakenBodies { logger: number, request: false, response: true, coding }),
        }
    }

    fn log(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        let Some(sink) = &self.sink else { return };
        if !self.kind.admits(ex) {
            return;
        }
        if ex.client.stream.is_some() && matches!(self.form, LogEntryForm::Default(_)) {
            // A stream has no default form; `build` reports it.
            return;
        }
        let includes_request_body = self.taken(ex).is_some_and(|taken| taken.request);
        let needs_request = includes_request_body || self.needs_request_body;
        let entry = LogEntry {
            ex,
            outcome,
            form: &self.form,
            request_bytes_max: needs_request.then_some(self.request_bytes_max),
            includes_request_body,
            response_body: self.response_text(ex),
            unmatched_route: K::UNMATCHED_ROUTE,
        };
        ex.host.append_entry(sink, &mut |out| self.kind.render(&entry, out));
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        if phase != PhaseSet::LOG {
            return DryRunResult::Continue;
        }
        if !self.kind.admits(ex) {
            return DryRunResult::Note("no entry: no condition of match holds".into());
        }
        let mut note = self.target.clone();
        if self.request_body.as_ref().is_some_and(|rule| rule.holds(ex)) {
            note.push_str(", with the request body");
        }
        match &self.response_body {
            Some(BodyRule { condition: None, .. }) => note.push_str(", with the response body"),
            Some(_) => note.push_str(", with the response body if include_resp_body_expr holds"),
            None => {}
        }
        DryRunResult::Note(note.into())
    }
}
