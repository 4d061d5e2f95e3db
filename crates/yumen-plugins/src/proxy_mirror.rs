//! `proxy-mirror`: sends copies of requests to another host. The responses are discarded, and no client waits
//! for them.
//!
//! The plugin selects the requests; the worker sends the copies.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use yumen_config::resource::{UpstreamSpec, decode_value};
use yumen_config::schema::InvalidSettings;
use yumen_config::url;
use yumen_http::Framing;
use yumen_plugin::{
    DryRunResult, Exchange, MirrorTarget, PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step,
    UpstreamSlot,
};

/// Settings of `proxy-mirror`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ProxyMirrorSettings {
    /// Target of the copies: scheme (http, https, grpc or grpcs) and host, with a port if it is not the
    /// default port.
    #[schemars(regex(pattern = r"^(http(s)?|grpc(s)?):\/\/([\da-zA-Z._-]+|\[[\da-fA-F:]+\])(:\d+)?$"))]
    host: String,
    /// Path of the copies.
    #[schemars(regex(pattern = r"^/[^?&]+$"))]
    path: Option<String>,
    /// Whether `path` replaces the path of the request or is a prefix of it.
    #[serde(default)]
    path_concat_mode: MirrorPathMode,
    /// Share of the requests to copy, from 0.00001 to 1.
    #[serde(default = "all")]
    #[schemars(range(min = 0.00001, max = 1))]
    sample_ratio: f64,
    /// Largest request body in bytes that is copied. Requests with a larger body, or one of unknown length,
    /// are not copied. Beyond APISIX.
    #[serde(default = "body_bytes_max")]
    #[schemars(range(min = 0, max = 16777216))]
    max_req_body_size: usize,
}

fn all() -> f64 {
    1.0
}

fn body_bytes_max() -> usize {
    1024 * 1024
}

/// Whether the configured path replaces the path of the request or is a prefix of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum MirrorPathMode {
    #[default]
    Replace,
    Prefix,
}

/// The compiled settings.
pub(crate) struct ProxyMirror {
    mirror: MirrorTarget,
    host: String,
    ratio: f64,
    body_bytes_max: usize,
}

impl PluginFactory for ProxyMirror {
    const NAME: &'static str = "proxy-mirror";
    const PRIORITY: i32 = 1010;
    type Config = ProxyMirrorSettings;

    fn build(config: ProxyMirrorSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let written = upstream(&config.host)?;
        let upstream = match setup.objects {
            None => UpstreamSlot::default(),
            Some(objects) => objects
                .inline_upstream("host", written)
                .map_err(|refused| InvalidSettings::at("host", refused.message))?,
        };
        let mirror = MirrorTarget {
            upstream,
            path: config.path.map(Arc::from),
            is_prefix: config.path_concat_mode == MirrorPathMode::Prefix,
        };
        let (ratio, body_bytes_max) = (config.sample_ratio, config.max_req_body_size);
        Ok(ProxyMirror { mirror, host: config.host, ratio, body_bytes_max })
    }
}

/// The inline upstream with the endpoint of the URL.
fn upstream(host: &str) -> Result<UpstreamSpec, InvalidSettings> {
    let (scheme, rest) = host.split_once("://").unwrap_or(("http", host));
    // `https` and `grpcs`.
    let usual = if scheme.ends_with('s') { 443 } else { 80 };
    // In an IPv6 address in brackets, the last colon begins no port.
    let (name, port) = match rest.rsplit_once(':') {
        Some((name, port)) if !rest.ends_with(']') => {
            let refused = || InvalidSettings::at("host", format!("\"{port}\" is not a port"));
            (name, url::port(port).ok_or_else(refused)?)
        }
        _ => (rest, usual),
    };
    let node = json!({ "host": name, "port": port, "weight": 1 });
    decode_value(json!({ "nodes": [node], "scheme": scheme }))
        .map_err(|refused| InvalidSettings::at("host", refused.message))
}

impl ProxyMirror {
    // A number near `u64::MAX` rounds up to the bound and would be excluded even with a ratio of 1.
    fn draws(&self, ex: &Exchange<'_>) -> bool {
        self.ratio >= 1.0 || (ex.host.random() as f64) < self.ratio * u64::MAX as f64
    }
}

impl Plugin for ProxyMirror {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // Set already if this is the second call, after the body was buffered: draw only once.
        if !ex.upstream.mirrors.is_empty() || !self.draws(ex) {
            return Step::Continue;
        }
        ex.upstream.mirrors.push(self.mirror.clone());
        match ex.request.framing {
            Framing::Length(length) if ex.body.buffered.is_none() && length <= self.body_bytes_max as u64 => {
                Step::NeedBody { bytes_max: self.body_bytes_max }
            }
            _ => Step::Continue,
        }
    }

    fn dry_run(&self, _: PhaseSet, _: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::Note(
            format!("copies {} % of such requests to {}", self.ratio * 100.0, self.host).into(),
        )
    }
}

#[cfg(test)]
mod tests;
