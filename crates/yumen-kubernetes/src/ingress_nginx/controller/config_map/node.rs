//! Keys of the node: connections, workers, logs.

use super::super::settings_reader::SettingsReader;
use super::super::types::ControllerSettings;
use crate::ingress_nginx::annotations::parse_size;
use crate::ingress_nginx::log_line::translate_log_line;

/// Keys with a whole number, their settings, and the factor between both.
const NUMBERS: [(&str, &str, u64); 9] = [
    ("keep-alive", "timeouts.idle_ms", 1000),
    ("client-header-timeout", "timeouts.head_ms", 1000),
    ("client-body-timeout", "timeouts.body_ms", 1000),
    ("http2-max-concurrent-streams", "http2.streams", 1),
    ("upstream-keepalive-connections", "upstream_keepalive.size", 1),
    ("upstream-keepalive-timeout", "upstream_keepalive.idle_ms", 1000),
    ("upstream-keepalive-requests", "upstream_keepalive.requests", 1),
    ("max-worker-connections", "limits.connections_per_worker", 1),
    ("worker-processes", "workers.count", 1),
];

/// Bounds of `limits.head_bytes`.
const HEAD_BYTES: std::ops::RangeInclusive<u64> = 1024..=65_536;

pub(super) fn read_connections(reader: &mut SettingsReader<'_>) {
    for (key, path, factor) in NUMBERS {
        // `auto` and 0 of the number of workers mean one for each CPU in both.
        if reader.text(key) == Some("auto") {
            reader.set_node(key, path, 0);
        } else if let Some(number) = reader.number(key) {
            reader.set_node(key, path, u64::from(number) * factor);
        }
    }
    for (key, path) in [
        ("worker-shutdown-timeout", "timeouts.drain_ms"),
        ("proxy-stream-timeout", "timeouts.stream_idle_ms"),
    ] {
        if let Some(time) = reader.time_ms(key) {
            reader.set_node(key, path, time);
        }
    }
    if let Some(enabled) = reader.switch("use-http2") {
        reader.set_node("use-http2", "http2.enabled", enabled);
    }
    match reader.text("worker-cpu-affinity") {
        None => {}
        Some("auto") => reader.set_node("worker-cpu-affinity", "workers.cpu_affinity", "auto"),
        Some(_) => {
            let message = "a mask of CPUs has no translation";
            reader.warn("worker-cpu-affinity", message, Some("write a list of CPUs as workers.cpu_affinity"));
        }
    }
    read_head_buffers(reader);
}

/// Reads `4 8k`: a number of buffers and the size of each.
fn read_head_buffers(reader: &mut SettingsReader<'_>) {
    let key = "large-client-header-buffers";
    let Some(written) = reader.text(key) else { return };
    let words: Vec<&str> = written.split_whitespace().collect();
    let bytes = match words[..] {
        [count, size] => count.parse::<u64>().ok().zip(parse_size(size)),
        _ => None,
    };
    match bytes.and_then(|(count, size)| count.checked_mul(size)) {
        Some(bytes) => {
            let bounded = bytes.clamp(*HEAD_BYTES.start(), *HEAD_BYTES.end());
            if bounded < bytes {
                reader.warn(
                    key,
                    format!("heads of requests have at most {bounded} bytes, not {bytes}"),
                    None,
                );
            }
            reader.set_node(key, "limits.head_bytes", bounded);
        }
        None => reader.error(key, format!("{written:?} is not a number and a size, such as `4 8k`")),
    }
}

pub(super) fn read_logs(reader: &mut SettingsReader<'_>, settings: &mut ControllerSettings) {
    let log = &mut settings.log;
    if let Some(written) = reader.text("log-format-upstream") {
        match translate_log_line(written) {
            Ok(translated) => {
                for name in &translated.unknown {
                    let message =
                        format!("the access log has no variable ${name}; the line has `-` in its place");
                    reader.warn("log-format-upstream", message, None);
                }
                log.line = Some(translated.line.as_str().into());
                reader.set_node("log-format-upstream", "logs.access.line", translated.line);
            }
            Err(defect) => reader.error("log-format-upstream", defect),
        }
    }
    log.escapes_json = reader.switch("log-format-escape-json") == Some(true);
    if log.escapes_json {
        reader.set_node("log-format-escape-json", "logs.access.escape", "json");
    } else if reader.switch("log-format-escape-none") == Some(true) {
        reader.set_node("log-format-escape-none", "logs.access.escape", "none");
    }
    log.is_off = ["disable-access-log", "disable-http-access-log"]
        .into_iter()
        .any(|key| reader.switch(key) == Some(true));
    reader.set_node("disable-access-log", "logs.access.enabled", !log.is_off);
    for key in ["http-access-log-path", "access-log-path"] {
        if let Some(path) = reader.text(key) {
            // The default of ingress-nginx is a link to standard output.
            let path = if path == "/var/log/nginx/access.log" { "-" } else { path };
            reader.set_node(key, "logs.access.path", path);
            break;
        }
    }
    log.skipped_paths = reader.list("skip-access-log-urls").unwrap_or_default();
    if let Some(level) = reader.text("error-log-level") {
        let level = match level {
            "debug" | "info" | "warn" | "error" => level,
            "notice" => "info",
            _ => "error",
        };
        reader.set_node("error-log-level", "logs.level", level);
    }
}
