//! `deadline`: derives the deadline of an exchange from request fields and passes the remaining time to
//! endpoints.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, Exchange, PhaseSet, Plugin, PluginBuildContext, PluginFactory, Step, UpstreamRequestPhase,
};

/// Settings of `deadline`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct DeadlineSettings {
    /// Request fields that may carry a deadline; the earliest deadline counts.
    #[serde(default = "request_headers")]
    #[schemars(length(max = 16))]
    request_headers: Vec<DeadlineHeader>,
    /// Whether requests to endpoints carry the remaining time.
    #[serde(default = "yes")]
    tell_upstream: bool,
    /// Field of the requests to endpoints that carries the remaining time.
    #[serde(default = "upstream_header")]
    upstream_header: DeadlineHeader,
    /// Deadline of requests without such a field, in seconds; without this setting there is none.
    #[schemars(extend("exclusiveMinimum" = 0))]
    default_timeout: Option<f64>,
    /// Latest deadline that a client may request, in seconds; without this setting there is no bound.
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_timeout: Option<f64>,
}

/// A field that carries a deadline.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
struct DeadlineHeader {
    /// Name of the field.
    #[schemars(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"))]
    name: String,
    /// Format of the value.
    format: DeadlineFormat,
}

/// Format of a deadline in a field value.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum DeadlineFormat {
    /// Milliseconds from now.
    Milliseconds,
    /// Seconds from now, with optional decimals.
    Seconds,
    /// A point in time in milliseconds since 1970-01-01 UTC.
    UnixMilliseconds,
    /// Digits and a unit, as in `grpc-timeout`.
    Grpc,
}

fn header(name: &str, format: DeadlineFormat) -> DeadlineHeader {
    DeadlineHeader { name: name.to_owned(), format }
}

fn request_headers() -> Vec<DeadlineHeader> {
    vec![
        header("X-Request-Deadline", DeadlineFormat::UnixMilliseconds),
        header("X-Envoy-Expected-Rq-Timeout-Ms", DeadlineFormat::Milliseconds),
        header("Grpc-Timeout", DeadlineFormat::Grpc),
    ]
}

fn upstream_header() -> DeadlineHeader {
    header("X-Envoy-Expected-Rq-Timeout-Ms", DeadlineFormat::Milliseconds)
}

fn yes() -> bool {
    true
}

impl DeadlineFormat {
    /// Milliseconds until the deadline; `None` if the value is malformed.
    fn read(self, value: &[u8], unix_ms: u64) -> Option<u64> {
        let text = std::str::from_utf8(value).ok()?.trim_ascii();
        match self {
            DeadlineFormat::Milliseconds => text.parse().ok(),
            DeadlineFormat::Seconds => {
                let seconds: f64 = text.parse().ok()?;
                (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1000.0) as u64)
            }
            // A time in the past leaves no time, but is still a deadline.
            DeadlineFormat::UnixMilliseconds => Some(text.parse::<u64>().ok()?.saturating_sub(unix_ms)),
            DeadlineFormat::Grpc => grpc(text),
        }
    }

    fn write(self, left_ms: u64, unix_ms: u64) -> String {
        match self {
            DeadlineFormat::Milliseconds => left_ms.to_string(),
            DeadlineFormat::Seconds => format!("{}.{:03}", left_ms / 1000, left_ms % 1000),
            DeadlineFormat::UnixMilliseconds => (unix_ms + left_ms).to_string(),
            // The gRPC protocol allows at most eight digits.
            DeadlineFormat::Grpc => format!("{}m", left_ms.min(99_999_999)),
        }
    }
}

fn grpc(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let count: u64 = digits.parse().ok().filter(|_| digits.len() <= 8)?;
    match unit {
        "H" => Some(count * 3_600_000),
        "M" => Some(count * 60_000),
        "S" => Some(count * 1000),
        "m" => Some(count),
        "u" => Some(count / 1000),
        "n" => Some(count / 1_000_000),
        _ => None,
    }
}

/// A deadline of a year or more counts as none, which keeps sums in range.
const FOREVER_MS: u64 = 365 * 86_400_000;

/// The compiled settings.
pub(crate) struct DeadlinePlugin {
    config: DeadlineSettings,
    default_ms: Option<u64>,
    max_ms: Option<u64>,
}

impl PluginFactory for DeadlinePlugin {
    const NAME: &'static str = "deadline";
    const PRIORITY: i32 = 12020;
    type Config = DeadlineSettings;

    fn build(config: DeadlineSettings, _setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        let millis = |seconds: Option<f64>| {
            seconds.map(|seconds| ((seconds * 1000.0).ceil() as u64).max(1)).filter(|ms| *ms < FOREVER_MS)
        };
        Ok(DeadlinePlugin {
            default_ms: millis(config.default_timeout),
            max_ms: millis(config.max_timeout),
            config,
        })
    }
}

impl DeadlinePlugin {
    /// Milliseconds until the deadline. Malformed values are ignored.
    fn left_ms(&self, ex: &Exchange<'_>) -> Option<u64> {
        let received =
            self.config.request_headers.iter().filter_map(|header| {
                header.format.read(ex.request.fields.get(&header.name)?, ex.now.unix_ms)
            });
        let timeout = received.min().or(self.default_ms).filter(|ms| *ms < FOREVER_MS);
        [timeout, self.max_ms].into_iter().flatten().min()
    }
}

impl Plugin for DeadlinePlugin {
    fn phases(&self) -> PhaseSet {
        PhaseSet::REWRITE | PhaseSet::UPSTREAM_REQUEST
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(left_ms) = self.left_ms(ex) {
            let at_ms = ex.now.mono_ms() + left_ms;
            // A global rule may already have set an earlier deadline.
            ex.upstream.deadline_ms =
                if ex.upstream.deadline_ms == 0 { at_ms } else { ex.upstream.deadline_ms.min(at_ms) };
        }
        Step::Continue
    }

    fn upstream_request(&self, ex: &mut UpstreamRequestPhase<'_, '_>) {
        if self.config.tell_upstream && ex.upstream.deadline_ms != 0 {
            let header = &self.config.upstream_header;
            let now = ex.host.clock();
            let left_ms = ex.upstream.deadline_ms.saturating_sub(now.mono_ms()).max(1);
            let value = header.format.write(left_ms, now.unix_ms);
            ex.request_mut().fields.set(&header.name, value.as_bytes());
        }
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        DryRunResult::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
