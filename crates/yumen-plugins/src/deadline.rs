//! `deadline`: how long a client still waits, as it says itself, and what endpoints are told of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use yumen_config::schema::Invalid;
use yumen_plugin::{Configure, Exchange, Foreseen, Phases, Plugin, Setup, Step};

/// Settings of `deadline`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Config {
    /// The fields that may tell it; the earliest of those told counts.
    #[serde(default = "request_headers")]
    #[schemars(length(max = 16))]
    request_headers: Vec<Header>,
    /// Whether endpoints are told what is left.
    #[serde(default = "yes")]
    tell_upstream: bool,
    /// The field that tells them.
    #[serde(default = "upstream_header")]
    upstream_header: Header,
    /// How long a client waits that does not say, in seconds; absent means for ever.
    #[schemars(extend("exclusiveMinimum" = 0))]
    default_timeout: Option<f64>,
    /// The longest a client may ask for, in seconds; absent means any time.
    #[schemars(extend("exclusiveMinimum" = 0))]
    max_timeout: Option<f64>,
}

/// A field that tells a deadline.
#[derive(Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
struct Header {
    /// Its name.
    #[schemars(regex(pattern = "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"))]
    name: String,
    /// What its value means.
    format: Format,
}

/// What a value means.
#[derive(Debug, Clone, Copy, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum Format {
    /// Milliseconds from now.
    Milliseconds,
    /// Seconds from now, fractions allowed.
    Seconds,
    /// A time, in milliseconds since 1970.
    UnixMilliseconds,
    /// Digits and a unit, as `grpc-timeout` has it.
    Grpc,
}

fn header(name: &str, format: Format) -> Header {
    Header { name: name.to_owned(), format }
}

fn request_headers() -> Vec<Header> {
    vec![
        header("X-Request-Deadline", Format::UnixMilliseconds),
        header("X-Envoy-Expected-Rq-Timeout-Ms", Format::Milliseconds),
        header("Grpc-Timeout", Format::Grpc),
    ]
}

fn upstream_header() -> Header {
    header("X-Envoy-Expected-Rq-Timeout-Ms", Format::Milliseconds)
}

fn yes() -> bool {
    true
}

impl Format {
    /// How many milliseconds a value leaves; `None` where it is not understood.
    fn read(self, value: &[u8], unix_ms: u64) -> Option<u64> {
        let text = std::str::from_utf8(value).ok()?.trim_ascii();
        match self {
            Format::Milliseconds => text.parse().ok(),
            Format::Seconds => {
                let seconds: f64 = text.parse().ok()?;
                (seconds.is_finite() && seconds >= 0.0).then_some((seconds * 1000.0) as u64)
            }
            Format::UnixMilliseconds => Some(text.parse::<u64>().ok()?.saturating_sub(unix_ms)),
            Format::Grpc => grpc(text),
        }
    }

    fn write(self, left_ms: u64, unix_ms: u64) -> String {
        match self {
            Format::Milliseconds => left_ms.to_string(),
            Format::Seconds => format!("{}.{:03}", left_ms / 1000, left_ms % 1000),
            Format::UnixMilliseconds => (unix_ms + left_ms).to_string(),
            Format::Grpc => format!("{}m", left_ms.min(99_999_999)),
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

/// A year from now is for ever, which keeps sums in range.
const FOREVER_MS: u64 = 365 * 86_400_000;

/// The plugin.
pub(crate) struct Deadline {
    config: Config,
    default_ms: Option<u64>,
    max_ms: Option<u64>,
}

impl Configure for Deadline {
    const NAME: &'static str = "deadline";
    const PRIORITY: i32 = 12020;
    type Config = Config;

    fn build(config: Config, _setup: &Setup<'_>) -> Result<Self, Invalid> {
        let millis = |seconds: Option<f64>| {
            seconds.map(|seconds| ((seconds * 1000.0).ceil() as u64).max(1)).filter(|ms| *ms < FOREVER_MS)
        };
        Ok(Deadline {
            default_ms: millis(config.default_timeout),
            max_ms: millis(config.max_timeout),
            config,
        })
    }
}

impl Deadline {
    /// How long the client still waits, in milliseconds. What cannot be read was not said.
    fn left_ms(&self, ex: &Exchange<'_>) -> Option<u64> {
        let told =
            self.config.request_headers.iter().filter_map(|header| {
                header.format.read(ex.request.fields.get(&header.name)?, ex.now.unix_ms)
            });
        let wanted = told.min().or(self.default_ms).filter(|ms| *ms < FOREVER_MS);
        [wanted, self.max_ms].into_iter().flatten().min()
    }
}

impl Plugin for Deadline {
    fn phases(&self) -> Phases {
        Phases::REWRITE | Phases::UPSTREAM_REQUEST
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        if let Some(left_ms) = self.left_ms(ex) {
            let at_ms = ex.now.mono_ms() + left_ms;
            ex.deadline_ms = if ex.deadline_ms == 0 { at_ms } else { ex.deadline_ms.min(at_ms) };
        }
        Step::Continue
    }

    fn upstream_request(&self, ex: &mut Exchange<'_>) {
        if self.config.tell_upstream && ex.deadline_ms != 0 {
            let header = &self.config.upstream_header;
            let now = ex.host.clock();
            let left_ms = ex.deadline_ms.saturating_sub(now.mono_ms()).max(1);
            let value = header.format.write(left_ms, now.unix_ms);
            ex.request.fields.set(&header.name, value.as_bytes());
        }
    }

    fn foresee(&self, phase: Phases, ex: &mut Exchange<'_>) -> Foreseen {
        Foreseen::by_running(self, phase, ex)
    }
}

#[cfg(test)]
mod tests;
