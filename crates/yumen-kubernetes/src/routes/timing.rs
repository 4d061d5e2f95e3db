//! Timeouts and retries of rules.

use serde_json::{Value, json};

use super::rule::RuleDefect;
use crate::model::{RouteRetryPolicy, RouteTimeouts, parse_duration_ms};

/// Seconds between bytes that an upstream has by default.
const IDLE_S: f64 = 60.0;
/// Seconds between bytes where the user asks for no timeout.
const UNBOUNDED_S: f64 = 86_400.0;
const ATTEMPTS_MAX: u32 = 100;
const BACKOFF_MAX_MS: u64 = 3_600_000;

/// The member `timeout` of a route; `None` if the rule has no timeouts.
pub(super) fn timeout_value(timeouts: &RouteTimeouts) -> Result<Option<Value>, RuleDefect> {
    let request = seconds("timeouts.request", timeouts.request.as_deref())?;
    let attempt = seconds("timeouts.backendRequest", timeouts.backend_request.as_deref())?;
    if request.is_none() && attempt.is_none() {
        return Ok(None);
    }
    // The bound between two bytes must not be shorter than that of the whole.
    let bounds = [request, attempt].into_iter().flatten();
    let longest = bounds.map(|bound| if bound == 0.0 { UNBOUNDED_S } else { bound }).fold(IDLE_S, f64::max);
    let mut value = json!({ "connect": IDLE_S, "send": longest, "read": longest });
    for (name, bound) in [("total", request), ("attempt", attempt)] {
        if let Some(bound) = bound.filter(|bound| *bound > 0.0) {
            value[name] = bound.into();
        }
    }
    Ok(Some(value))
}

/// The member `retry` of a route.
pub(super) fn retry_value(retry: &RouteRetryPolicy) -> Result<Value, RuleDefect> {
    let mut statuses = retry.codes.to_vec();
    statuses.sort_unstable();
    statuses.dedup();
    if let Some(code) = statuses.iter().find(|code| !(400..600).contains(*code)) {
        return Err(RuleDefect::unsupported(format!("retry.codes has {code}; allowed: 400 to 599")));
    }
    let backoff_ms = milliseconds("retry.backoff", retry.backoff.as_deref())?.unwrap_or(0);
    Ok(json!({
        "statuses": statuses,
        "attempts": retry.attempts.unwrap_or(1).min(ATTEMPTS_MAX),
        "backoff_ms": backoff_ms.min(BACKOFF_MAX_MS),
    }))
}

/// Milliseconds of an optional duration.
pub(super) fn milliseconds(member: &str, text: Option<&str>) -> Result<Option<u64>, RuleDefect> {
    let Some(text) = text else { return Ok(None) };
    match parse_duration_ms(text) {
        Some(ms) => Ok(Some(ms)),
        None => Err(RuleDefect::unsupported(format!("{member} {text:?} is no duration"))),
    }
}

fn seconds(member: &str, text: Option<&str>) -> Result<Option<f64>, RuleDefect> {
    // Durations are below 2^53 milliseconds, so the conversion is exact.
    Ok(milliseconds(member, text)?.map(|ms| ms as f64 / 1000.0))
}
