//! The flags of ingress-nginx's process.

use std::collections::BTreeMap;

use yumen_config::suggestion;

use super::keys::KeyEffect;
use super::settings_reader::SettingsReader;
use super::types::{ControllerProblem, ControllerSettings, WebhookFlags};
use crate::model::ClusterKind;

const fn used(flag: &'static str) -> (&'static str, KeyEffect) {
    (flag, KeyEffect::Used(""))
}

const fn node(flag: &'static str, path: &'static str) -> (&'static str, KeyEffect) {
    (flag, KeyEffect::Node(path))
}

const fn no_effect(flag: &'static str, reason: &'static str) -> (&'static str, KeyEffect) {
    (flag, KeyEffect::NoEffect(reason))
}

const fn refused(
    flag: &'static str,
    reason: &'static str,
    way_over: &'static str,
) -> (&'static str, KeyEffect) {
    (flag, KeyEffect::Refused { reason, way_over, guards: false })
}

const NO_RELOAD: &str = "changes apply without a reload";
const METRICS: &str = "metrics are always collected, with bounds of their own";
const NO_GEOIP: &str = "the gateway has no database of places";
const NO_PROFILER: &str = "the gateway has no such profiler";

/// All flags, with their effects.
pub(in crate::ingress_nginx) const FLAG_ROWS: [(&str, KeyEffect); 72] = [
    used("ingress-class"),
    used("controller-class"),
    used("ingress-class-by-name"),
    used("watch-ingress-without-class"),
    used("watch-namespace"),
    used("watch-namespace-selector"),
    used("configmap"),
    used("tcp-services-configmap"),
    used("udp-services-configmap"),
    used("default-backend-service"),
    used("default-ssl-certificate"),
    used("publish-service"),
    used("publish-status-address"),
    used("report-node-internal-ip-address"),
    used("update-status"),
    used("update-status-on-shutdown"),
    used("enable-ssl-passthrough"),
    used("disable-catch-all"),
    used("disable-svc-external-name"),
    used("annotations-prefix"),
    refused("enable-annotation-validation", "values are always validated", "correct the values"),
    used("deep-inspect"),
    used("enable-topology-aware-routing"),
    node("kubeconfig", "kubernetes.kubeconfig"),
    refused("apiserver-host", "the API server is that of the kubeconfig", "write a kubeconfig"),
    refused("certificate-authority", "the authority is that of the kubeconfig", "write a kubeconfig"),
    no_effect("election-id", "the lease is yumen-controller"),
    no_effect("election-ttl", "the lease holds 15 s"),
    refused("disable-leader-election", "one replica writes statuses", "set kubernetes.take_over to false"),
    no_effect("status-update-interval", "statuses are written on changes, at most every 500 ms"),
    used("http-port"),
    used("https-port"),
    node("healthz-port", "status.listen"),
    node("healthz-host", "status.listen"),
    no_effect("health-check-path", "the paths are /status and /status/ready"),
    no_effect("health-check-timeout", "the probe's own timeout bounds it"),
    no_effect("default-server-port", "unmatched requests need no server of their own"),
    no_effect("ssl-passthrough-proxy-port", "connections are passed through on the port that they came to"),
    no_effect("status-port", "the status listener is status.listen"),
    no_effect("stream-port", "endpoints need no internal port"),
    no_effect("internal-logger-address", "logs need no internal port"),
    no_effect("profiling", NO_PROFILER),
    no_effect("profiler-port", NO_PROFILER),
    no_effect("profiler-address", NO_PROFILER),
    node("shutdown-grace-period", "kubernetes.linger_s"),
    no_effect("post-shutdown-grace-period", "the process ends when its last exchange has"),
    no_effect("sync-period", "watches are kept current by bookmarks"),
    no_effect("sync-rate-limit", NO_RELOAD),
    no_effect("dynamic-configuration-retries", NO_RELOAD),
    no_effect("disable-sync-events", "no event is written for a change without a problem"),
    used("validating-webhook"),
    used("validating-webhook-certificate"),
    used("validating-webhook-key"),
    no_effect("disable-full-test", "the webhook compiles the change alone, in milliseconds"),
    refused(
        "enable-ssl-chain-completion",
        "chains are sent as the Secret has them",
        "put the intermediate certificates into tls.crt",
    ),
    no_effect("enable-metrics", METRICS),
    no_effect("metrics-per-host", METRICS),
    no_effect("metrics-per-undefined-host", METRICS),
    no_effect("report-status-classes", METRICS),
    no_effect("time-buckets", METRICS),
    no_effect("length-buckets", METRICS),
    no_effect("size-buckets", METRICS),
    no_effect("bucket-factor", METRICS),
    no_effect("max-buckets", METRICS),
    no_effect("exclude-socket-metrics", METRICS),
    no_effect("monitor-max-batch-size", METRICS),
    refused("maxmind-mirror", NO_GEOIP, "let the load balancer in front send the place in a field"),
    refused("maxmind-license-key", NO_GEOIP, "let the load balancer in front send the place in a field"),
    no_effect("maxmind-edition-ids", NO_GEOIP),
    no_effect("maxmind-retries-count", NO_GEOIP),
    no_effect("maxmind-retries-timeout", NO_GEOIP),
    no_effect("version", "`yumen --version` prints it"),
];

/// Switches that `ControllerFlags` keeps, with the values that they have if they are absent.
const SWITCHES: [(&str, bool); 10] = [
    ("ingress-class-by-name", false),
    ("watch-ingress-without-class", false),
    ("report-node-internal-ip-address", false),
    ("update-status", true),
    ("update-status-on-shutdown", true),
    ("enable-ssl-passthrough", false),
    ("disable-catch-all", false),
    ("disable-svc-external-name", false),
    ("deep-inspect", true),
    ("enable-topology-aware-routing", false),
];

/// Flags of the logging library, which every process with it has.
const LOG_FLAGS: [&str; 14] = [
    "v",
    "vmodule",
    "logtostderr",
    "alsologtostderr",
    "stderrthreshold",
    "log_dir",
    "log_file",
    "log_file_max_size",
    "log_backtrace_at",
    "one_output",
    "skip_headers",
    "skip_log_headers",
    "add_dir_header",
    "legacy_stderr_threshold_behavior",
];

/// Reads the arguments of the controller's process, such as `--ingress-class=nginx`.
pub fn read_flags(arguments: &[String]) -> (ControllerSettings, Vec<ControllerProblem>) {
    let mut settings = ControllerSettings::default();
    let mut reader = SettingsReader::new(parse_arguments(arguments), "--");
    report_effects(&mut reader);
    let flags = &mut settings.flags;
    flags.ingress_class = reader.shared("ingress-class");
    flags.controller_class = reader.shared("controller-class");
    for (name, default) in SWITCHES {
        if reader.switch(name).unwrap_or(default) {
            flags.switches.push(name);
        }
    }
    flags.watch_namespace = reader.shared("watch-namespace");
    flags.watch_selector = reader.shared("watch-namespace-selector");
    flags.default_backend = reader.reference("default-backend-service", ClusterKind::Service);
    flags.config_map = reader.reference("configmap", ClusterKind::ConfigMap);
    flags.tcp_services = reader.reference("tcp-services-configmap", ClusterKind::ConfigMap);
    flags.udp_services = reader.reference("udp-services-configmap", ClusterKind::ConfigMap);
    flags.publish_service = reader.reference("publish-service", ClusterKind::Service);
    flags.webhook = WebhookFlags {
        listen: reader.shared("validating-webhook"),
        certificate: reader.shared("validating-webhook-certificate"),
        key: reader.shared("validating-webhook-key"),
    };
    flags.publish_addresses = reader.list("publish-status-address").unwrap_or_default();
    settings.tls.default_certificate = reader.reference("default-ssl-certificate", ClusterKind::Secret);
    if let Some(prefix) = reader.shared("annotations-prefix") {
        settings.policy.prefix = prefix;
    }
    if let Some(seconds) = reader.number("shutdown-grace-period") {
        reader.set_node("shutdown-grace-period", "kubernetes.linger_s", seconds);
    }
    settings.node.append(&mut reader.node);
    (settings, reader.problems)
}

/// Names and values of flags: `--name=value`, `--name value`, and `--name` for `true`.
fn parse_arguments(arguments: &[String]) -> BTreeMap<&str, &str> {
    let mut values = BTreeMap::new();
    let mut arguments = arguments.iter().map(String::as_str).peekable();
    while let Some(argument) = arguments.next() {
        let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else { continue };
        if let Some((name, value)) = flag.split_once('=') {
            values.insert(name, value);
            continue;
        }
        let is_switch = SWITCHES.iter().any(|(name, _)| *name == flag);
        let value = match arguments.peek() {
            Some(next) if !is_switch && !next.starts_with('-') => arguments.next().unwrap_or("true"),
            _ => "true",
        };
        values.insert(flag, value);
    }
    values
}

fn report_effects(reader: &mut SettingsReader<'_>) {
    for flag in reader.keys() {
        match FLAG_ROWS.iter().find(|(name, _)| *name == flag).map(|(_, effect)| *effect) {
            Some(KeyEffect::Used(_) | KeyEffect::Node(_)) => {}
            Some(KeyEffect::NoEffect(reason)) => reader.warn(flag, format!("no effect: {reason}"), None),
            Some(KeyEffect::Refused { reason, way_over, guards }) => {
                if reader.text(flag).is_some_and(|value| value != "false")
                    != (flag == "enable-annotation-validation")
                {
                    reader.push(flag, guards, reason, Some(way_over));
                }
            }
            None if LOG_FLAGS.contains(&flag) => {
                reader.warn(flag, "no effect: the level of the node log is logs.level", None);
            }
            None => {
                let hint = suggestion(flag, FLAG_ROWS.iter().map(|(name, _)| *name));
                reader.warn(flag, "ingress-nginx has no flag of this name", hint.as_deref());
            }
        }
    }
}
