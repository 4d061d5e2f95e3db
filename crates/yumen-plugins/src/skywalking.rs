//! `skywalking`: continues traces of SkyWalking and sends segments to an OAP server.

mod segment;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::vars::ProcessVars;
use yumen_plugin::{
    BatchPolicy, DryRunResult, Exchange, ExchangeOutcome, ExchangeTrace, PhaseSet, Plugin,
    PluginBuildContext, PluginFactory, SinkAddress, SinkHandle, SinkSpec, SinkTls, Step,
};

use crate::sink_url::SinkUrl;
use crate::traces::sampler::{TraceSampler, TraceShare};
use crate::traces::sw8::{SW8, Sw8Context};
use crate::traces::{hex_id, new_trace_id};
use segment::{EXIT_SPAN, SegmentEncoder, TraceSegment};

/// The upstream in traces, as APISIX names it.
const UPSTREAM: &str = "upstream service";

/// Settings of `skywalking`. The address of the server and the names are settings of the node: `plugins.attr`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct SkywalkingSettings {
    /// Fraction of requests that are recorded.
    #[serde(default = "sample_ratio")]
    #[schemars(range(min = 0.00001, max = 1))]
    sample_ratio: f64,
}

fn sample_ratio() -> f64 {
    1.0
}

/// The service that spans belong to.
#[derive(Debug, Clone)]
struct ServiceInstance {
    service: String,
    instance: String,
}

/// The compiled settings.
pub(crate) struct SkywalkingPlugin {
    share: TraceShare,
    names: ServiceInstance,
    sink: Option<SinkHandle>,
    server: String,
}

impl PluginFactory for SkywalkingPlugin {
    const NAME: &'static str = "skywalking";
    const PRIORITY: i32 = 12010;
    const PREFERS_ROUTE: bool = true;
    type Config = SkywalkingSettings;

    fn build(config: SkywalkingSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let attributes = &setup.node.plugin_attributes["skywalking"];
        let text = |name: &str, default: &str| attributes[name].as_str().unwrap_or(default).to_owned();
        let instance = match text("service_instance_name", "APISIX Instance Name").as_str() {
            "$hostname" => ProcessVars::current().map_or_else(String::new, |node| node.hostname.to_string()),
            name => name.to_owned(),
        };
        let names = ServiceInstance { service: text("service_name", "APISIX"), instance };
        let share = TraceShare::of(config.sample_ratio);
        let Ok(url) = SinkUrl::parse("endpoint_addr", &text("endpoint_addr", "http://127.0.0.1:12800"))
        else {
            // A setting of the node must not close the route.
            setup.warn(
                "sample_ratio",
                "no segment is sent: plugins.attr.skywalking.endpoint_addr is no http or https URL",
                "correct yumen.yaml and restart the node",
            );
            return Ok(SkywalkingPlugin { share, names, sink: None, server: "no server".to_owned() });
        };
        let interval_ms =
            attributes["report_interval"].as_u64().map_or(3000, |seconds| seconds.saturating_mul(1000));
        let encoder =
            SegmentEncoder { prefix: url.target.trim_end_matches('/').to_owned(), names: names.clone() };
        let spec = sink_spec(url.origin, interval_ms, &encoder);
        let server = spec.address.to_string();
        let sink = setup.sinks.map(|registry| registry.open(spec, Arc::new(encoder)));
        Ok(SkywalkingPlugin { share, names, sink, server })
    }
}

fn sink_spec(origin: String, interval_ms: u64, encoder: &SegmentEncoder) -> SinkSpec {
    SinkSpec {
        plugin: SkywalkingPlugin::NAME,
        name: "skywalking".to_owned(),
        address: SinkAddress::Http {
            endpoints: vec![origin],
            tls: SinkTls { verify: true, ..SinkTls::default() },
            timeout_ms: 5000,
            idle_ms: 60_000,
        },
        policy: BatchPolicy {
            batch_max_size: 100,
            inactive_timeout_ms: interval_ms,
            buffer_duration_ms: interval_ms,
            max_retry_count: 1,
            retry_delay_ms: 1000,
            pending_entries_max: 8192,
            pending_bytes_max: 32 * 1024 * 1024,
        },
        encoder: format!("{encoder:?}"),
    }
}

impl SkywalkingPlugin {
    fn begin(&self, ex: &mut Exchange<'_>) {
        let parent = ex.request.fields.get(SW8).and_then(Sw8Context::parse);
        // The caller does not record the trace, so its spans would have no parent.
        let is_denied = parent.as_ref().is_some_and(|parent| !parent.is_sampled);
        if is_denied || !self.share.draws(ex.host.random()) {
            return;
        }
        let id = new_trace_id(ex.host);
        let text = |id| String::from_utf8_lossy(&hex_id::trace_text(id)).into_owned();
        let segment_id = text(new_trace_id(ex.host));
        let endpoint = String::from_utf8_lossy(ex.request.path()).into_owned();
        let context = Sw8Context {
            is_sampled: true,
            trace_id: parent.as_ref().map_or_else(|| text(id), |parent| parent.trace_id.clone()),
            segment_id,
            span_id: EXIT_SPAN,
            service: self.names.service.clone(),
            instance: self.names.instance.clone(),
            endpoint,
            address: UPSTREAM.to_owned(),
        };
        ex.request.fields.set_only(SW8, context.text().as_bytes());
        // An identifier of another form names no exemplar.
        if let Some(trace_id) = hex_id::parse(context.trace_id.as_bytes()) {
            ex.leave(ExchangeTrace {
                plugin: SkywalkingPlugin::NAME,
                trace_id,
                trace_id_bytes: 16,
                span_id: [0; 8],
                is_sampled: true,
                sets_variables: false,
            });
        }
        let mut url = Vec::with_capacity(64);
        url.extend_from_slice(ex.client.scheme().as_bytes());
        url.extend_from_slice(b"://");
        url.extend_from_slice(ex.request.host());
        url.extend_from_slice(&ex.request.request_uri());
        ex.leave(TraceSegment { context, parent, method: ex.request.method_name().to_vec(), url });
    }
}

impl Plugin for SkywalkingPlugin {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE | PhaseSet::LOG
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        self.begin(ex);
        Step::Continue
    }

    fn log(&self, ex: &Exchange<'_>, outcome: &ExchangeOutcome<'_>) {
        let (Some(sink), Some(segment)) = (&self.sink, ex.note::<TraceSegment>()) else { return };
        ex.host.append_entry(sink, &mut |out| segment.write(ex, outcome, out));
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        if phase != PhaseSet::REWRITE {
            return DryRunResult::by_running(self, phase, ex);
        }
        self.begin(ex);
        let sampler = TraceSampler::Share(self.share);
        DryRunResult::Note(format!("records {sampler} for {}", self.server).into())
    }
}

/// A JSON text for requests that are no entries.
fn instance_json(names: &ServiceInstance, properties: Option<Value>) -> Vec<u8> {
    let mut object = serde_json::json!({ "service": names.service, "serviceInstance": names.instance });
    if let Some(properties) = properties {
        object["properties"] = properties;
    }
    object.to_string().into_bytes()
}

#[cfg(test)]
mod tests;
