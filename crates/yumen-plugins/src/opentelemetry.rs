//! `opentelemetry`: continues W3C traces and exports spans by OTLP.
//!
//! Spans are rendered on the worker, in the log phase; the sender adds the resource around them.

mod attributes;
mod export;
mod settings;
mod span;

use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, Exchange, ExchangeOutcome, ExchangeTrace, PhaseSet, Plugin, PluginBuildContext,
    PluginFactory, SinkHandle, Step, UpstreamRequestPhase,
};

use crate::traces::sampler::TraceSampler;
use crate::traces::w3c::{self, TraceParent};
use crate::traces::{SpanId, TraceId, hex_id, new_span_id, new_trace_id};
use attributes::AttributeRules;
pub(crate) use settings::OpenTelemetryMetadata;
use settings::{OpenTelemetrySettings, SpanDetail, TraceIdSource};
use span::ServerSpan;

/// The compiled settings.
pub(crate) struct OpenTelemetry {
    /// `None` without metadata, which names the collector.
    tracer: Option<SpanTracer>,
}

/// Makes and exports spans.
struct SpanTracer {
    sampler: TraceSampler,
    attributes: AttributeRules,
    id_source: TraceIdSource,
    sets_variables: bool,
    detail: SpanDetail,
    sink: Option<SinkHandle>,
    /// The collector in words, for the dry run.
    collector: String,
}

impl PluginFactory for OpenTelemetry {
    const NAME: &'static str = "opentelemetry";
    const PRIORITY: i32 = 12009;
    type Config = OpenTelemetrySettings;

    fn build(config: OpenTelemetrySettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let Some(written) = setup.metadata else {
            setup.warn(
                "sampler",
                "no trace is recorded: the metadata of the plugin is missing",
                "PUT plugin_metadata/opentelemetry with the address of the collector",
            );
            return Ok(OpenTelemetry { tracer: None });
        };
        let parsed =
            OpenTelemetryMetadata::parse(written).and_then(|metadata| Ok((metadata.sink()?, metadata)));
        let (plan, metadata) = match parsed {
            Ok(parsed) => parsed,
            // A wrong address must not close the route.
            Err(refusal) => {
                let message = format!("no trace is recorded: invalid metadata: {}", refusal.message);
                setup.warn("sampler", message, "correct plugin_metadata/opentelemetry");
                return Ok(OpenTelemetry { tracer: None });
            }
        };
        if metadata.drops_when_full() == Some(false) {
            setup.warn(
                "sampler",
                "drop_on_queue_full false has no effect: requests never wait for a collector",
                "remove it from the metadata, and raise max_queue_size",
            );
        }
        let collector = plan.address.to_string();
        let tracer = SpanTracer {
            sampler: config.sampler(),
            attributes: config.attribute_rules(),
            id_source: metadata.trace_id_source,
            sets_variables: metadata.set_ngx_var,
            detail: metadata.span_detail,
            sink: setup.sinks.map(|registry| plan.open(registry)),
            collector,
        };
        Ok(OpenTelemetry { tracer: Some(tracer) })
    }
}

impl SpanTracer {
    /// Identifies the instance: a global rule and a route may both have the plugin.
    fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Continues the trace of the caller, or begins one.
    fn begin(&self, ex: &mut Exchange<'_>) {
        let parent = TraceParent::of(&ex.request.fields);
        let trace_id = parent.map_or_else(|| self.new_trace(ex), |parent| parent.trace_id);
        let context = TraceParent {
            trace_id,
            span_id: new_span_id(ex.host),
            is_sampled: self.sampler.samples(parent.map(|parent| parent.is_sampled), &trace_id),
            is_random: parent.is_some_and(|parent| parent.is_random),
        };
        w3c::settle_state(&mut ex.request.fields, parent.is_some());
        if context.is_sampled {
            let begun = span::begin(&self.attributes, ex);
            ex.leave(ServerSpan {
                tracer: self.number(),
                context,
                parent_id: parent.map(|parent| parent.span_id),
                begun,
                attempts: Vec::new(),
            });
            if self.detail != SpanDetail::Server {
                ex.record_timeline();
            }
        }
        context.write(&mut ex.request.fields);
        if context.is_sampled || self.sets_variables {
            ex.leave(ExchangeTrace {
                plugin: OpenTelemetry::NAME,
                trace_id,
                trace_id_bytes: 16,
                span_id: context.span_id,
                is_sampled: context.is_sampled,
                sets_variables: self.sets_variables,
            });
        }
    }

    fn new_trace(&self, ex: &Exchange<'_>) -> TraceId {
        let of_request = || hex_id::parse(ex.request.fields.get("x-request-id")?);
        match self.id_source {
            TraceIdSource::XRequestId => of_request().unwrap_or_else(|| new_trace_id(ex.host)),
            TraceIdSource::Random => new_trace_id(ex.host),
        }
    }

    /// Gives an attempt a span of its own, which the endpoint continues.
    fn begin_attempt(&self, ex: &mut UpstreamRequestPhase<'_, '_>) {
        let span_id: SpanId = new_span_id(ex.host);
        let number = self.number();
        let span = ex.notes_mut::<ServerSpan>().find(|span| span.tracer == number);
        let Some(context) = span.map(|span| {
            span.attempts.push(span_id);
            TraceParent { span_id, ..span.context }
        }) else {
            return;
        };
        context.write(&mut ex.request_mut().fields);
    }

    fn end(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        let number = self.number();
        let Some(sink) = &self.sink else { return };
        let Some(span) = ex.notes::<ServerSpan>().find(|span| span.tracer == number) else { return };
        ex.host.append_entry(sink, &mut |out| {
            span.write(&self.attributes, ex, outcome, out);
            if self.detail != SpanDetail::Server {
                span.write_children(self.detail, ex, outcome, out);
            }
        });
    }
}

impl Plugin for OpenTelemetry {
    fn phases(&self) -> PhaseSet {
        let Some(tracer) = &self.tracer else { return PhaseSet::NONE };
        let mut phases = PhaseSet::REWRITE;
        if !tracer.sampler.is_off() {
            phases = phases | PhaseSet::LOG;
            if tracer.detail != SpanDetail::Server {
                phases = phases | PhaseSet::UPSTREAM_REQUEST;
            }
        }
        phases
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(tracer) = &self.tracer {
            tracer.begin(ex);
        }
        Step::Continue
    }

    fn upstream_request(&self, ex: &mut UpstreamRequestPhase<'_, '_>) {
        if let Some(tracer) = &self.tracer {
            tracer.begin_attempt(ex);
        }
    }

    fn log(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        if let Some(tracer) = &self.tracer {
            tracer.end(ex, outcome);
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        let Some(tracer) = &self.tracer else { return DryRunResult::Continue };
        if phase != PhaseSet::REWRITE {
            return DryRunResult::by_running(self, phase, ex);
        }
        tracer.begin(ex);
        DryRunResult::Note(format!("records {} for {}", tracer.sampler, tracer.collector).into())
    }
}

#[cfg(test)]
mod tests;
