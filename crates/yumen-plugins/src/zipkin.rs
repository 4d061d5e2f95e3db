//! `zipkin`: continues B3 traces and sends spans to a Zipkin server.

mod report;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_http::Fields;
use yumen_plugin::{
    BatchPolicy, DryRunResult, Exchange, ExchangeOutcome, ExchangeTrace, LocalResponse, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, ResponseHead, ResponseHeadPhase, SinkAddress, SinkHandle, SinkSpec,
    SinkTls, Step,
};

use crate::sink_url::SinkUrl;
use crate::traces::b3::{self, B3Context, B3Sampling, B3TraceId};
use crate::traces::sampler::{TraceSampler, TraceShare};
use crate::traces::{SpanId, hex_id, new_span_id, new_trace_id};
use report::{LocalEndpoint, SpanListEncoder, ZipkinTrace};

/// Settings of `zipkin`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ZipkinSettings {
    /// URL that takes lists of spans, such as `http://127.0.0.1:9411/api/v2/spans`.
    endpoint: String,
    /// Fraction of requests without a decision of the caller that are recorded.
    #[schemars(range(min = 0.00001, max = 1))]
    sample_ratio: f64,
    /// Name of the service in spans.
    #[serde(default = "service_name")]
    service_name: String,
    /// IPv4 address of the service in spans; the address that the client reached by default.
    #[schemars(regex(pattern = r"^[0-9]{1,3}.[0-9]{1,3}.[0-9]{1,3}.[0-9]{1,3}$"))]
    server_addr: Option<String>,
    /// Spans of a request: 1 for one per phase, 2 for the time until the response and the time of the response.
    #[serde(default = "span_version")]
    #[schemars(schema_with = "span_version_schema")]
    span_version: u64,
}

fn service_name() -> String {
    "APISIX".to_owned()
}

fn span_version() -> u64 {
    2
}

fn span_version_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"enum": [1, 2], "default": 2})
}

/// The compiled settings.
pub(crate) struct ZipkinPlugin {
    share: TraceShare,
    has_phase_spans: bool,
    sets_variables: bool,
    local: LocalEndpoint,
    sink: Option<SinkHandle>,
    endpoint: String,
}

impl PluginFactory for ZipkinPlugin {
    const NAME: &'static str = "zipkin";
    const PRIORITY: i32 = 12011;
    type Config = ZipkinSettings;

    fn build(config: ZipkinSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let url = SinkUrl::parse("endpoint", &config.endpoint)?;
        let encoder = SpanListEncoder { target: url.target };
        let spec = SinkSpec {
            plugin: ZipkinPlugin::NAME,
            name: "zipkin".to_owned(),
            address: SinkAddress::Http {
                endpoints: vec![url.origin],
                tls: SinkTls { verify: true, ..SinkTls::default() },
                timeout_ms: 5000,
                idle_ms: 60_000,
            },
            policy: BatchPolicy {
                batch_max_size: 1000,
                inactive_timeout_ms: 5000,
                buffer_duration_ms: 60_000,
                max_retry_count: 0,
                retry_delay_ms: 1000,
                pending_entries_max: 8192,
                pending_bytes_max: 32 * 1024 * 1024,
            },
            encoder: format!("{encoder:?}"),
        };
        let endpoint = format!("{}{}", spec.address, encoder.target);
        let sets_variables = setup.node.plugin_attributes["zipkin"]["set_ngx_var"].as_bool();
        Ok(ZipkinPlugin {
            share: TraceShare::of(config.sample_ratio),
            has_phase_spans: config.span_version == 1,
            sets_variables: sets_variables.unwrap_or_default(),
            local: LocalEndpoint { service_name: config.service_name, address: config.server_addr },
            sink: setup.sinks.map(|registry| registry.open(spec, Arc::new(encoder))),
            endpoint,
        })
    }
}

impl ZipkinPlugin {
    /// Identifies the instance: a global rule and a route may both have the plugin.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn is_sampled(&self, sampling: B3Sampling, ex: &Exchange<'_>) -> bool {
        match sampling {
            B3Sampling::Accepted | B3Sampling::Debug => true,
            B3Sampling::Denied => false,
            B3Sampling::Undecided => self.share.draws(ex.host.random()),
        }
    }

    fn begin(&self, ex: &mut Exchange<'_>, context: B3Context) {
        if !self.is_sampled(context.sampling, ex) {
            pass_on_unsampled(&mut ex.request.fields, context);
            return;
        }
        let new_trace = || B3TraceId { id: new_trace_id(ex.host), is_short: false };
        let trace = ZipkinTrace {
            plugin: self.number(),
            trace_id: context.ids.map_or_else(new_trace, |ids| ids.trace_id),
            request_id: new_span_id(ex.host),
            parent_id: context.ids.and_then(|ids| ids.span_id),
            proxy_id: new_span_id(ex.host),
            tags: report::request_tags(ex),
            marks: Vec::new(),
        };
        let fields = &mut ex.request.fields;
        fields.remove(b3::SINGLE);
        trace.trace_id.with_text(|text| fields.set_only(b3::TRACE_ID, text));
        set_id(fields, b3::SPAN_ID, trace.proxy_id);
        set_id(fields, b3::PARENT_ID, trace.request_id);
        match context.sampling {
            // Debug implies the decision, which must not be sent beside it (openzipkin/b3-propagation, "Flags").
            B3Sampling::Debug => {
                fields.set_only(b3::FLAGS, b"1");
                fields.remove_equivalent(b3::SAMPLED);
            }
            _ => fields.set_only(b3::SAMPLED, b"1"),
        }
        ex.leave(ExchangeTrace {
            plugin: ZipkinPlugin::NAME,
            trace_id: trace.trace_id.id,
            trace_id_bytes: if trace.trace_id.is_short { 8 } else { 16 },
            span_id: trace.request_id,
            is_sampled: true,
            sets_variables: self.sets_variables,
        });
        ex.leave(trace);
    }

    /// Notes the end of a phase.
    fn mark(&self, name: &'static str, notes: Option<&mut ZipkinTrace>, mono_us: u64) {
        if let Some(trace) = notes {
            trace.marks.push((name, mono_us));
        }
    }
}

fn set_id(fields: &mut Fields, name: &str, id: SpanId) {
    fields.set_only(name, &hex_id::span_text(id));
}

/// Passes on the decision, and the identifiers of a single field, which upstreams need not understand.
fn pass_on_unsampled(fields: &mut Fields, context: B3Context) {
    if fields.remove(b3::SINGLE)
        && let Some(ids) = context.ids
    {
        ids.trace_id.with_text(|text| fields.set_only(b3::TRACE_ID, text));
        for (name, id) in [(b3::SPAN_ID, ids.span_id), (b3::PARENT_ID, ids.parent_id)] {
            match id {
                Some(id) => set_id(fields, name, id),
                None => drop(fields.remove_equivalent(name)),
            }
        }
    }
    fields.set_only(b3::SAMPLED, b"0");
}

impl Plugin for ZipkinPlugin {
    fn phases(&self) -> PhaseSet {
        let phases = PhaseSet::REWRITE | PhaseSet::RESPONSE_HEAD | PhaseSet::LOG;
        if self.has_phase_spans { phases | PhaseSet::ACCESS } else { phases }
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Ok(context) = B3Context::of(&ex.request.fields) else {
            return Step::Respond(LocalResponse::status(400));
        };
        self.begin(ex, context);
        if self.has_phase_spans {
            let (now_us, number) = (ex.host.clock().mono_us, self.number());
            let trace = ex.note_mut::<ZipkinTrace>().filter(|trace| trace.plugin == number);
            self.mark("apisix.rewrite", trace, now_us);
        }
        Step::Continue
    }

    fn access<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let (now_us, number) = (ex.host.clock().mono_us, self.number());
        let trace = ex.note_mut::<ZipkinTrace>().filter(|trace| trace.plugin == number);
        self.mark("apisix.access", trace, now_us);
        Step::Continue
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, _: &mut ResponseHead) {
        let number = self.number();
        if !ex.notes::<ZipkinTrace>().any(|trace| trace.plugin == number) {
            return;
        }
        let now_us = ex.host.clock().mono_us;
        let trace = ex.notes_mut::<ZipkinTrace>().find(|trace| trace.plugin == number);
        self.mark("apisix.proxy", trace, now_us);
    }

    fn log(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        let (Some(sink), number) = (&self.sink, self.number()) else { return };
        let Some(trace) = ex.notes::<ZipkinTrace>().find(|trace| trace.plugin == number) else { return };
        let render = |out: &mut Vec<u8>| trace.write(&self.local, self.has_phase_spans, ex, outcome, out);
        ex.host.append_entry(sink, &mut { render });
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        match DryRunResult::by_running(self, phase, ex) {
            DryRunResult::Continue if phase == PhaseSet::REWRITE => {
                let sampler = TraceSampler::ParentBased(self.share);
                DryRunResult::Note(format!("records {sampler} for {}", self.endpoint).into())
            }
            result => result,
        }
    }
}

#[cfg(test)]
mod tests;
