//! Plugins that observe: request ids, metrics, logs, traces.

use serde_json::{Value, json};

use super::{ConvertedPlugins, PluginJob};

pub(super) fn correlation_id(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let header = job.text("header_name").unwrap_or_else(|| "Kong-Request-ID".into());
    let generator = job.text("generator").unwrap_or_else(|| "uuid#counter".into());
    if generator != "uuid" {
        job.different("generator", "every request gets a UUID", format!("{generator} is not made here"));
    }
    let echoes = job.flag("echo_downstream", false);
    super::one("request-id", json!({ "header_name": header, "include_in_response": echoes }))
}

pub(super) fn prometheus(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    // Metrics that are always on here.
    for field in [
        "per_consumer",
        "status_code_metrics",
        "latency_metrics",
        "bandwidth_metrics",
        "upstream_health_metrics",
    ] {
        job.flag(field, true);
    }
    for field in ["ai_metrics", "wasm_metrics"] {
        job.skip(field, json!(false), "there are no such metrics here");
    }
    let why = "names are apisix_*, not kong_*; dashboards have to be changed";
    job.different("", "metrics are those of the prometheus plugin here", why);
    super::one("prometheus", json!({}))
}

/// Takes the settings of log plugins that have no counterpart.
fn drop_log_settings(job: &mut PluginJob<'_>) {
    job.skip("custom_fields_by_lua", Value::Null, "Lua is not run");
    let queue = json!({
        "max_batch_size": 1, "max_coalescing_delay": 1, "max_entries": 10_000, "max_bytes": null,
        "initial_retry_delay": 0.01, "max_retry_time": 60, "max_retry_delay": 60, "concurrency_limit": 1,
    });
    let is_default = |written: &Value| {
        written.as_object().is_some_and(|all| all.iter().all(|(name, value)| queue.get(name) == Some(value)))
    };
    if job.settings.peek("queue").is_some_and(is_default) {
        job.settings.take("queue");
    }
    for (field, default) in [
        ("queue", Value::Null),
        ("queue_size", json!(1)),
        ("flush_timeout", json!(2)),
        ("retry_count", json!(10)),
        ("keepalive", json!(60_000)),
        ("reopen", json!(false)),
        ("content_type", json!("application/json")),
    ] {
        job.skip(field, default, "the queue and its connection have other settings here");
    }
    job.different("", "entries have the fields of the logger here", "the shape of Kong's entries is another");
}

pub(super) fn http_log(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    drop_log_settings(job);
    let mut out = json!({ "uri": job.text("http_endpoint").unwrap_or_default() });
    if let Some(timeout) = job.number("timeout") {
        out["timeout"] = json!((timeout / 1000.0).ceil().max(1.0) as u64);
    }
    let headers = job.settings.child("headers", job.report);
    job.skip("method", json!("POST"), "logs are posted");
    if let Some(mut headers) = headers {
        if let Some(authorization) = headers.text("Authorization", job.report) {
            out["auth_header"] = json!(authorization);
        }
        headers.finish(job.report);
    }
    super::one("http-logger", out)
}

pub(super) fn socket_log(name: &str, job: &mut PluginJob<'_>) -> ConvertedPlugins {
    drop_log_settings(job);
    let mut out =
        json!({ "host": job.text("host").unwrap_or_default(), "port": job.count("port").unwrap_or(0) });
    if let Some(timeout) = job.number("timeout") {
        // `tcp-logger` has milliseconds, `udp-logger` seconds.
        let seconds = (timeout / 1000.0).ceil().max(1.0);
        out["timeout"] = json!(if name == "tcp-log" { timeout } else { seconds } as u64);
    }
    if name == "udp-log" {
        return super::one("udp-logger", out);
    }
    if job.flag("tls", false) {
        out["tls"] = json!(true);
    }
    if let Some(server_name) = job.text("tls_sni") {
        out["tls_options"] = json!(server_name);
    }
    super::one("tcp-logger", out)
}

pub(super) fn file_log(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    drop_log_settings(job);
    super::one("file-logger", json!({ "path": job.text("path").unwrap_or_default() }))
}

pub(super) fn kafka_log(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    drop_log_settings(job);
    let mut brokers = job.settings.list("bootstrap_servers", job.report);
    let mut out = json!({ "kafka_topic": job.text("topic").unwrap_or_default(), "batch_max_size": 1 });
    if let Some(mut login) = job.settings.child("authentication", job.report) {
        login.skip("strategy", &json!("sasl"), "clients log in by SASL", job.report);
        login.skip("tokenauth", &json!(false), "delegation tokens are not supported", job.report);
        let mechanism = login.text("mechanism", job.report).unwrap_or_else(|| "PLAIN".into());
        let (user, password) = (login.text("user", job.report), login.text("password", job.report));
        if let (Some(user), Some(password)) = (user, password) {
            let sasl = json!({ "mechanism": mechanism, "user": user, "password": password });
            brokers.iter_mut().for_each(|broker| broker["sasl_config"] = sasl.clone());
        }
        login.finish(job.report);
    }
    if let Some(mut security) = job.settings.child("security", job.report) {
        let verifies = security.flag("ssl_verify", job.report).unwrap_or(false);
        if security.flag("ssl", job.report).unwrap_or(false) {
            out["tls"] = json!({ "verify": verifies });
        }
        security.skip("certificate_id", &Value::Null, "client certificates are not supported", job.report);
        security.finish(job.report);
    }
    out["brokers"] = json!(brokers);
    if let Some(timeout) = job.number("timeout") {
        out["timeout"] = json!((timeout / 1000.0).ceil().max(1.0) as u64);
    }
    match job.number("producer_request_acks") {
        Some(acks) if acks < 0.0 => out["required_acks"] = json!(-1),
        Some(0.0) => job.different(
            "producer_request_acks",
            "the leader acknowledges records",
            "0 loses records silently",
        ),
        _ => {}
    }
    for field in [
        "keepalive_enabled",
        "producer_async",
        "producer_async_buffering_limits_messages_in_memory",
        "producer_async_flush_timeout",
        "producer_request_limits_bytes_per_request",
        "producer_request_limits_messages_per_request",
        "producer_request_retries_backoff_timeout",
        "producer_request_retries_max_attempts",
        "producer_request_timeout",
        "cluster_name",
        "key_query_arg",
    ] {
        job.skip(field, Value::Null, "the producer has other settings here");
    }
    super::one("kafka-logger", out)
}

pub(super) fn loggly(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    job.skip("custom_fields_by_lua", Value::Null, "Lua is not run");
    let mut out = json!({ "customer_token": job.text("key").unwrap_or_default(), "tags": ["kong"] });
    let tags = job.texts("tags");
    if !tags.is_empty() {
        out["tags"] = json!(tags);
    }
    if let Some(severity) = job.text("successful_severity") {
        // The plugin of APISIX spells this severity so.
        let severity = if severity == "emerg" { "emegr" } else { &severity };
        out["severity"] = json!(severity);
    }
    job.skip("log_level", json!("info"), "all requests are logged");
    for field in ["client_errors_severity", "server_errors_severity"] {
        job.skip(field, json!("info"), "severity_map has the severities of single statuses");
    }
    for (field, default) in
        [("host", json!("logs-01.loggly.com")), ("port", json!(514)), ("timeout", json!(10_000))]
    {
        job.skip(field, default, "set it in the metadata of the plugin loggly");
    }
    super::one("loggly", out)
}

pub(super) fn datadog(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    for (field, default) in [("host", json!("localhost")), ("port", json!(8125))] {
        job.skip(field, default, "set it in the metadata of the plugin datadog");
    }
    job.skip("prefix", json!("apisix"), "set namespace in the metadata of the plugin datadog");
    for field in ["service_name_tag", "status_tag", "consumer_tag", "metrics"] {
        job.skip(field, Value::Null, "metrics and tags are those of the plugin here");
    }
    for field in ["retry_count", "queue_size", "flush_timeout", "queue"] {
        job.skip(field, Value::Null, "the queue has other settings here");
    }
    job.different("", "metrics have the names of the plugin here", "dashboards have to be changed");
    super::one("datadog", json!({}))
}

pub(super) fn zipkin(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    let out = json!({
        "endpoint": job.text("http_endpoint").unwrap_or_default(),
        "sample_ratio": job.number("sample_ratio").unwrap_or(0.001).max(0.00001),
        "service_name": job.text("local_service_name").unwrap_or_else(|| "kong".into()),
    });
    let why = "B3 fields are read in both forms and sent as X-B3-*";
    job.skip("header_type", json!("preserve"), why);
    job.skip("default_header_type", json!("b3"), why);
    job.skip("propagation", json!({ "default_format": "b3" }), why);
    for (field, default) in [
        ("default_service_name", Value::Null),
        ("include_credential", json!(true)),
        ("tags_header", json!("Zipkin-Tags")),
        ("static_tags", Value::Null),
        ("http_span_name", json!("method")),
        ("phase_duration_flavor", json!("annotations")),
    ] {
        job.skip(field, default, "spans have the names and tags of the plugin here");
    }
    skip_trace_transport(job);
    super::one("zipkin", out)
}

pub(super) fn opentelemetry(job: &mut PluginJob<'_>) -> ConvertedPlugins {
    // The default of `tracing_sampling_rate` in kong.conf.
    let fraction = job.number("sampling_rate").unwrap_or(0.01);
    let root = json!({ "name": "trace_id_ratio", "options": { "fraction": fraction } });
    for field in ["traces_endpoint", "endpoint", "headers", "resource_attributes"] {
        job.skip(field, Value::Null, "set it in the metadata of the plugin opentelemetry");
    }
    job.skip("logs_endpoint", Value::Null, "logs are not exported by OTLP");
    let why = "W3C trace context is read and sent";
    job.skip("header_type", json!("preserve"), why);
    job.skip("propagation", json!({ "default_format": "w3c" }), why);
    for (field, default) in [("batch_span_count", json!(200)), ("batch_flush_delay", json!(3))] {
        job.skip(field, default, "set batch_span_processor in the metadata of the plugin opentelemetry");
    }
    skip_trace_transport(job);
    job.different(
        "",
        "the plugin records traces once its metadata names a collector",
        "Kong has the address in each use",
    );
    super::one("opentelemetry", json!({ "sampler": { "name": "parent_base", "options": { "root": root } } }))
}

/// Takes the settings of connections and queues, which have no counterpart.
fn skip_trace_transport(job: &mut PluginJob<'_>) {
    for field in [
        "traceid_byte_count",
        "connect_timeout",
        "send_timeout",
        "read_timeout",
        "queue",
        "http_response_header_for_traceid",
    ] {
        job.skip(field, Value::Null, "identifiers, time limits and the queue are those of the plugin here");
    }
}

/// A plugin with different settings, which are dropped.
pub(super) fn without_settings(name: &'static str, job: &mut PluginJob<'_>) -> ConvertedPlugins {
    job.dropped("", format!("the settings of {name} differ and must be rewritten"));
    job.settings = super::super::entity::KongEntity::default();
    Vec::new()
}
