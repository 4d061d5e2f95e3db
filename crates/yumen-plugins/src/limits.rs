//! Common parts of the limit plugins: keys, amounts that may contain variables, and the table of counters.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{Exchange, LocalResponse, Step, Var, VarTemplate};

mod eviction;
mod handover;
pub(crate) mod remote;
pub(crate) mod schema;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub mod usage;

/// Form of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LimitKeyType {
    /// The name of a variable.
    #[default]
    Var,
    /// A template.
    VarCombination,
    /// Constant text.
    Constant,
}

/// The key under which a request is counted.
#[derive(Debug)]
pub(crate) enum LimitKey {
    /// The client address.
    Address,
    /// A variable, or the client address if it has no value.
    Var(Var),
    /// A template, or the client address if none of its variables has a value.
    Template(VarTemplate),
    /// One key for all requests.
    Constant(Box<str>),
}

/// Longest value that is part of a key as it is. Longer than usual values, because keys in Redis must equal
/// those of other gateways.
const VALUE_BYTES_MAX: usize = 256;

impl LimitKey {
    /// Compiles a key.
    pub(crate) fn new(key: &str, key_type: LimitKeyType) -> LimitKey {
        match key_type {
            // The most frequent key; it needs no text.
            LimitKeyType::Var if key == "remote_addr" => LimitKey::Address,
            LimitKeyType::Var => LimitKey::Var(Var::parse(key)),
            LimitKeyType::VarCombination => LimitKey::Template(VarTemplate::parse(key)),
            LimitKeyType::Constant => LimitKey::Constant(key.into()),
        }
    }

    /// Appends the key of the request; returns whether the key itself had a value.
    pub(crate) fn write(&self, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let found = self.write_value(ex, out);
        // One byte before the value marks its kind.
        if out.len() > start + 1 + VALUE_BYTES_MAX {
            digest_end(out, start + 1);
        }
        found
    }

    fn write_value(&self, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        out.push(b'=');
        let found = match self {
            LimitKey::Address => false,
            LimitKey::Var(var) => match var.get(ex) {
                Some(value) => {
                    out.extend_from_slice(&value);
                    true
                }
                None => false,
            },
            LimitKey::Template(template) => {
                let start = out.len();
                let found = template.render(ex, out) > 0;
                // Literal text without any value would be the same key for all clients.
                if !found {
                    out.truncate(start);
                }
                found
            }
            LimitKey::Constant(text) => {
                out.extend_from_slice(text.as_bytes());
                true
            }
        };
        // Without a value the client address is the key; the mark distinguishes it from equal text.
        if !found {
            out.pop();
            out.push(b'@');
            match ex.client.ip {
                std::net::IpAddr::V4(address) => out.extend_from_slice(&address.octets()),
                std::net::IpAddr::V6(address) => out.extend_from_slice(&address.octets()),
            }
        }
        found
    }
}

/// Replaces the end of the value with a digest. The result is one byte longer than any value that is stored
/// as it is, so the two cannot be equal.
#[cold]
fn digest_end(out: &mut Vec<u8>, value_at: usize) {
    let digest = digest(&SHA256, &out[value_at..]);
    out.truncate(value_at + VALUE_BYTES_MAX + 1 - 2 * SHA256_OUTPUT_LEN);
    for byte in digest.as_ref() {
        // Writes to a vector cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
}

/// Marks the key of one of several rules, so that rules with equal values count separately.
pub(crate) fn end_key_of_rule(rule: usize, key: &mut Vec<u8>) {
    // Writes to a vector cannot fail.
    let _ = write!(key, "#{}", rule + 1);
}

/// The index of the rule that [`end_key_of_rule`] wrote.
fn rule_of_key(key: &[u8]) -> Option<u8> {
    let at = key.iter().rposition(|byte| *byte == b'#')?;
    let number: usize = std::str::from_utf8(&key[at + 1..]).ok()?.parse().ok()?;
    Some(u8::try_from(number.checked_sub(1)?).unwrap_or(u8::MAX))
}

/// A number, or a template that yields one.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum LimitAmount<const MIN: u64> {
    /// A number.
    Number(u64),
    /// A template.
    Text(String),
}

impl<const MIN: u64> JsonSchema for LimitAmount<MIN> {
    fn schema_name() -> Cow<'static, str> {
        format!("Amount{MIN}").into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let number = if MIN == 1 {
            serde_json::json!({"type": "integer", "exclusiveMinimum": 0})
        } else {
            serde_json::json!({"type": "integer", "minimum": MIN})
        };
        schemars::json_schema!({"oneOf": [number, {"type": "string"}]})
    }
}

/// The largest number that APISIX counts exactly: the integers of an IEEE 754 double.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// A compiled [`LimitAmount`].
#[derive(Debug)]
pub(crate) enum LimitQuantity<const MIN: u64> {
    /// A constant.
    Fixed(u64),
    /// The number that the template yields.
    Varying(VarTemplate),
}

impl<const MIN: u64> LimitQuantity<MIN> {
    /// Compiles the amount of the setting at `path`. A constant text must be a number.
    pub(crate) fn new(
        amount: &LimitAmount<MIN>,
        path: impl Into<String>,
    ) -> Result<LimitQuantity<MIN>, InvalidSettings> {
        let text = match amount {
            LimitAmount::Number(number) => return Ok(LimitQuantity::Fixed(*number)),
            LimitAmount::Text(text) => text,
        };
        let template = VarTemplate::parse(text);
        if !template.is_constant() {
            return Ok(LimitQuantity::Varying(template));
        }
        // Refused here: at run time, every request would be answered 500.
        number::<MIN>(text.as_bytes()).map(LimitQuantity::Fixed).ok_or_else(|| {
            let message =
                format!("\"{text}\" is not a number: write an integer from {MIN}, or a text with $variables");
            InvalidSettings::at(path, message)
        })
    }

    /// The number for this exchange; `None` if the text is not an integer of at least `MIN`.
    pub(crate) fn get(&self, ex: &Exchange<'_>, scratch: &mut Vec<u8>) -> Option<u64> {
        match self {
            LimitQuantity::Fixed(number) => Some(*number),
            LimitQuantity::Varying(template) => {
                let start = scratch.len();
                template.render(ex, scratch);
                let found = number::<MIN>(&scratch[start..]);
                scratch.truncate(start);
                found
            }
        }
    }
}

/// Parses an integer in decimal or scientific notation: `10`, ` 10 `, `1e3`, `10.0`.
fn number<const MIN: u64>(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let found = match text.parse::<u64>() {
        Ok(found) => found,
        Err(_) => {
            // Whole numbers such as `1e3` and `5.0` are valid too.
            let found = text.parse::<f64>().ok()?;
            let whole = found.fract() == 0.0 && (0.0..=NUMBER_MAX as f64).contains(&found);
            whole.then_some(found as u64)?
        }
    };
    (MIN..=NUMBER_MAX).contains(&found).then_some(found)
}

/// Storage of the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CounterPolicy {
    /// In this node.
    #[default]
    Local,
    /// In a Redis server.
    Redis,
    /// In a Redis cluster.
    RedisCluster,
    /// In a Redis server that sentinels name.
    RedisSentinel,
}

/// Default status of a refusal.
pub(crate) fn rejected_code() -> u16 {
    503
}

/// The response for refused requests.
pub(crate) fn refusal(status: u16, message: Option<&str>) -> LocalResponse {
    match message {
        Some(message) => LocalResponse::error_msg(status, message),
        None => LocalResponse::status(status),
    }
}

/// Whether a request may pass without a limit, because an amount yields no number or no rule applies; otherwise the
/// response. Reported, since the settings or their variables are wrong.
pub(crate) fn undecided(
    ex: &Exchange<'_>,
    plugin: &'static str,
    owner: &str,
    allow_degradation: bool,
) -> Result<(), LocalResponse> {
    ex.host.report_undecided(plugin, owner, "an amount with variables is no number, or no rule applies");
    // The response of APISIX, which has no body.
    if allow_degradation { Ok(()) } else { Err(LocalResponse::status(500)) }
}

/// Delays an exchange.
pub(crate) fn wait<'a>(ex: &Exchange<'_>, delay_s: f64) -> Step<'a> {
    let Some(delay) = delay_of(delay_s) else { return Step::Continue };
    let sleep = ex.host.sleep(delay);
    Step::Wait(Box::pin(async move {
        sleep.await;
        Step::Continue
    }))
}

/// The delay of an exchange: none below one millisecond, and at most one day for any burst.
pub(crate) fn delay_of(delay_s: f64) -> Option<Duration> {
    const DELAY_S_MAX: f64 = 86_400.0;
    let delay = Duration::from_secs_f64(delay_s.min(DELAY_S_MAX));
    (delay >= Duration::from_millis(1)).then_some(delay)
}

/// Runs `run` with a buffer that is reused by the next call on this thread.
pub(crate) fn with_scratch<R>(run: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    thread_local! {
        static SCRATCH: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        // One long key must not occupy memory on every worker for good.
        if scratch.capacity() > 16 * 1024 {
            *scratch = Vec::new();
        }
        run(scratch)
    })
}
