//! Settings of upstreams by objects of `apisix.apache.org`: ApisixUpstream and BackendTrafficPolicy.
//!
//! A setting that cannot be followed marks the upstream as broken, so that no request passes without it.

mod external;
mod probes;

use serde_json::{Map, Value, json};

use crate::engine::TrackedView;
use crate::grants::{granted_secret, key_pair};
use crate::model::{
    ApisixUpstreamConfig, ApisixUpstreamObject, ClusterKind, ObjectKey, TimeoutSettings, UpstreamSettings,
    parse_go_duration_s,
};
use crate::resources::{SpecDefect, mark_broken};

pub(crate) use external::external_upstream;

/// Seconds of a timeout that is not set beside others.
const TIMEOUT_S: f64 = 60.0;

/// Applies the settings of a policy. `has_tls_policy`: whether the scheme is that of a BackendTLSPolicy, which stays.
pub(crate) fn apply_settings(
    settings: &UpstreamSettings,
    has_tls_policy: bool,
    members: &mut Map<String, Value>,
) {
    let mut defects = Vec::new();
    let scheme = members.get("scheme").cloned();
    write_settings(settings, members, &mut defects);
    if let Some(scheme) = scheme.filter(|_| has_tls_policy) {
        members.insert("scheme".to_owned(), scheme);
    }
    mark_broken(members, &defects);
}

/// The settings of a policy that cannot be followed.
pub(crate) fn settings_defects(settings: &UpstreamSettings) -> Vec<SpecDefect> {
    let mut defects = Vec::new();
    write_settings(settings, &mut Map::new(), &mut defects);
    defects
}

/// Applies an ApisixUpstream to a port of the Service of its name.
pub(crate) fn apply_upstream(
    view: &TrackedView<'_>,
    object: &ApisixUpstreamObject,
    port: u16,
    members: &mut Map<String, Value>,
) {
    let mut defects = Vec::new();
    write_config(view, object, &object.spec.config, members, &mut defects);
    for one in object.spec.port_level_settings.iter().filter(|one| one.port == port) {
        write_config(view, object, &one.config, members, &mut defects);
    }
    mark_broken(members, &defects);
}

/// The ApisixUpstream with the name of a Service.
pub(crate) fn upstream_of<'t>(
    view: &TrackedView<'t>,
    namespace: &str,
    name: &str,
) -> Option<&'t std::sync::Arc<ApisixUpstreamObject>> {
    view.get::<ApisixUpstreamObject>(&ObjectKey::new(ClusterKind::ApisixUpstream, namespace, name))
}

/// The defects of an ApisixUpstream by itself.
pub(crate) fn defects_of(view: &TrackedView<'_>, object: &ApisixUpstreamObject) -> Vec<SpecDefect> {
    let (mut members, (_, mut defects)) = (Map::new(), external::nodes_of(view, object));
    write_config(view, object, &object.spec.config, &mut members, &mut defects);
    for one in &object.spec.port_level_settings {
        write_config(view, object, &one.config, &mut members, &mut defects);
    }
    defects
}

fn write_config(
    view: &TrackedView<'_>,
    object: &ApisixUpstreamObject,
    config: &ApisixUpstreamConfig,
    members: &mut Map<String, Value>,
    defects: &mut Vec<SpecDefect>,
) {
    write_settings(&config.settings, members, defects);
    let owner = ObjectKey::new(ClusterKind::ApisixUpstream, &object.meta.namespace, &object.meta.name);
    if let Some(secret) = config.tls_secret.as_ref().filter(|secret| !secret.name.is_empty()) {
        let namespace = secret.namespace_or(&object.meta.namespace);
        let found = granted_secret(view, &owner, namespace, &secret.name);
        match found.and_then(|secret| key_pair(secret)) {
            Ok((cert, key)) => {
                members.insert("tls".to_owned(), json!({ "client_cert": cert, "client_key": key }));
            }
            Err(message) => defects.push(SpecDefect::new("tls", format!("tlsSecret: {message}"))),
        }
    }
    let is_plain = |scheme: &String| !matches!(scheme.as_str(), "" | "https" | "grpcs" | "tls");
    if config.tls_secret.is_none() && config.settings.scheme.as_ref().is_some_and(is_plain) {
        // A port without TLS shows no certificate, even if the other ports do.
        members.shift_remove("tls");
    }
    if let Some(discovery) = &config.discovery {
        members.shift_remove("nodes");
        members.insert("service_name".to_owned(), discovery.service_name.as_str().into());
        members.insert("discovery_type".to_owned(), discovery.kind.as_str().into());
        members.extend(discovery.args.clone().map(|args| ("discovery_args".to_owned(), args)));
    }
}

fn write_settings(
    settings: &UpstreamSettings,
    members: &mut Map<String, Value>,
    defects: &mut Vec<SpecDefect>,
) {
    if let Some(scheme) = settings.scheme.as_ref().filter(|scheme| !scheme.is_empty()) {
        if scheme.starts_with("grpc") {
            // The scheme has the version of HTTP already.
            members.shift_remove("http_version");
        }
        members.insert("scheme".to_owned(), scheme.as_str().into());
    }
    if let Some(balancer) = settings.load_balancer.as_ref().filter(|balancer| !balancer.kind.is_empty()) {
        members.insert("type".to_owned(), balancer.kind.as_str().into());
        // Those of settings that these replace.
        members.shift_remove("hash_on");
        members.shift_remove("key");
        for (name, value) in [("hash_on", &balancer.hash_on), ("key", &balancer.key)] {
            if let Some(value) = value.as_ref().filter(|value| !value.is_empty() && balancer.kind == "chash")
            {
                members.insert(name.to_owned(), value.as_str().into());
            }
        }
    }
    if let Some(retries) = settings.retries {
        // The schema refuses numbers below zero.
        members.insert("retries".to_owned(), retries.into());
    }
    if let Some(timeout) = &settings.timeout {
        match timeout_value(timeout) {
            Ok(value) => drop(members.insert("timeout".to_owned(), value)),
            Err(defect) => defects.push(defect),
        }
    }
    for (name, value) in [("pass_host", &settings.pass_host), ("upstream_host", &settings.upstream_host)] {
        if let Some(value) = value.as_ref().filter(|value| !value.is_empty()) {
            members.insert(name.to_owned(), value.as_str().into());
        }
    }
    if let Some(checks) = &settings.health_check {
        match probes::checks_value(checks) {
            // Probes decide instead of the results of requests.
            Ok(Some(value)) => {
                members.shift_remove("outlier_detection");
                members.insert("checks".to_owned(), value);
            }
            Ok(None) => {}
            Err(defect) => defects.push(defect),
        }
    }
}

/// The member `timeout`; a time that is not set is 60 s, as in APISIX.
pub(crate) fn timeout_value(timeout: &TimeoutSettings) -> Result<Value, SpecDefect> {
    let mut members = Map::new();
    for (name, text) in [("connect", &timeout.connect), ("send", &timeout.send), ("read", &timeout.read)] {
        let seconds = match text.as_deref().filter(|text| !text.is_empty()) {
            None => 0.0,
            Some(text) => parse_go_duration_s(text).ok_or_else(|| {
                let message = format!("{text:?} is no duration; write it such as 5s or 500ms");
                SpecDefect::new(format!("timeout.{name}"), message)
            })?,
        };
        members.insert(name.to_owned(), if seconds > 0.0 { seconds } else { TIMEOUT_S }.into());
    }
    Ok(members.into())
}
