//! Health checks, as the member `checks` of an upstream.

use serde_json::{Map, Value};

use crate::model::{
    ActiveProbeSettings, HealthCheckSettings, PassiveProbeSettings, ProbeThresholds, parse_go_duration_s,
};
use crate::resources::SpecDefect;

/// The member `checks`; `None` if there is neither an active nor a passive check.
pub(super) fn checks_value(checks: &HealthCheckSettings) -> Result<Option<Value>, SpecDefect> {
    let mut members = Map::new();
    if let Some(active) = &checks.active {
        members.insert("active".to_owned(), active_value(active)?);
    }
    if let Some(passive) = &checks.passive {
        members.insert("passive".to_owned(), passive_value(passive)?);
    }
    Ok((!members.is_empty()).then(|| members.into()))
}

fn active_value(active: &ActiveProbeSettings) -> Result<Value, SpecDefect> {
    let mut members = Map::new();
    put(&mut members, "type", active.kind.as_deref().filter(|kind| !kind.is_empty()));
    if let Some(seconds) = timeout_s(active.timeout.as_ref())? {
        members.insert("timeout".to_owned(), seconds.into());
    }
    put(&mut members, "concurrency", active.concurrency.filter(|count| *count > 0));
    put(&mut members, "host", active.host.as_deref().filter(|host| !host.is_empty()));
    put(&mut members, "port", active.port.filter(|port| *port > 0));
    put(&mut members, "http_path", active.http_path.as_deref().filter(|path| !path.is_empty()));
    put(&mut members, "https_verify_certificate", active.strict_tls);
    if !active.request_headers.is_empty() {
        put(&mut members, "req_headers", Some(active.request_headers.clone()));
    }
    for (name, thresholds) in [("healthy", &active.healthy), ("unhealthy", &active.unhealthy)] {
        if let Some(thresholds) = thresholds {
            members.insert(name.to_owned(), thresholds_value(name, thresholds)?);
        }
    }
    Ok(members.into())
}

fn passive_value(passive: &PassiveProbeSettings) -> Result<Value, SpecDefect> {
    let mut members = Map::new();
    put(&mut members, "type", passive.kind.as_deref().filter(|kind| !kind.is_empty()));
    for (name, thresholds) in [("healthy", &passive.healthy), ("unhealthy", &passive.unhealthy)] {
        if let Some(thresholds) = thresholds {
            members.insert(name.to_owned(), thresholds_value(name, thresholds)?);
        }
    }
    Ok(members.into())
}

/// Counts of zero are those that are not written.
fn thresholds_value(place: &str, thresholds: &ProbeThresholds) -> Result<Value, SpecDefect> {
    let mut members = Map::new();
    if let Some(text) = thresholds.interval.as_deref().filter(|text| !text.is_empty()) {
        let seconds = parse_go_duration_s(text).filter(|seconds| *seconds >= 1.0);
        let seconds = seconds.ok_or_else(|| {
            let message = format!("{text:?} is no interval of a second or more");
            SpecDefect::new(format!("checks.active.{place}.interval"), message)
        })?;
        // The bound keeps the number within the schema; fractions of a second are cut, as in APISIX.
        members.insert("interval".to_owned(), (seconds.min(86_400.0) as u32).into());
    }
    if !thresholds.http_codes.is_empty() {
        put(&mut members, "http_statuses", Some(thresholds.http_codes.clone()));
    }
    let counts = [
        ("successes", thresholds.successes),
        ("http_failures", thresholds.http_failures),
        ("tcp_failures", thresholds.tcp_failures),
        ("timeouts", thresholds.timeouts),
    ];
    for (name, count) in counts {
        // A count of the other list has no effect.
        let fits = (name == "successes") == (place == "healthy");
        put(&mut members, name, count.filter(|count| fits && *count > 0));
    }
    Ok(members.into())
}

/// Seconds of a probe: a duration as text, or a number of nanoseconds.
fn timeout_s(written: Option<&Value>) -> Result<Option<f64>, SpecDefect> {
    let seconds = match written {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => parse_go_duration_s(text),
        Some(other) => other.as_f64().map(|nanoseconds| nanoseconds / 1e9),
    };
    match seconds {
        Some(seconds) if seconds >= 0.0 => Ok(Some(seconds).filter(|seconds| *seconds > 0.0)),
        _ => Err(SpecDefect::new("checks.active.timeout", "the timeout of a probe is no duration")),
    }
}

fn put(members: &mut Map<String, Value>, name: &str, value: Option<impl Into<Value>>) {
    members.extend(value.map(|value| (name.to_owned(), value.into())));
}
