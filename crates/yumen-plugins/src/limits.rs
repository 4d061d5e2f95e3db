//! What the limit plugins have in common: whom a request counts for, numbers that may come from
//! variables, and the table of counters. Knows none of the plugins.

use std::borrow::Cow;
use std::io::Write;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use schemars::JsonSchema;
use serde::Deserialize;
use yumen_plugin::{Exchange, LocalResponse, Step, Var, VarTemplate};

mod eviction;
mod handover;
pub(crate) mod remote;
pub(crate) mod schema;
pub(crate) mod table;
#[cfg(test)]
mod tests;
pub mod usage;

/// How a key is understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LimitKeyType {
    /// The name of a variable.
    #[default]
    Var,
    /// A text with variables in it.
    VarCombination,
    /// A text as it stands.
    Constant,
}

/// Whom a request counts for.
#[derive(Debug)]
pub(crate) enum LimitKey {
    /// The client's address.
    Address,
    /// A variable; the client's address where it has no value.
    Var(Var),
    /// A text; the client's address where none of its variables has a value.
    Template(VarTemplate),
    /// Everybody.
    Constant(Box<str>),
}

/// How long a value is that a key holds as it is: longer than what requests are usually told apart by, since
/// Redis is told of keys by these values, as other gateways tell it.
const VALUE_BYTES_MAX: usize = 256;

impl LimitKey {
    /// Understands a key once.
    pub(crate) fn new(key: &str, key_type: LimitKeyType) -> LimitKey {
        match key_type {
            // The most usual key, for which no text need be made.
            LimitKeyType::Var if key == "remote_addr" => LimitKey::Address,
            LimitKeyType::Var => LimitKey::Var(Var::parse(key)),
            LimitKeyType::VarCombination => LimitKey::Template(VarTemplate::parse(key)),
            LimitKeyType::Constant => LimitKey::Constant(key.into()),
        }
    }

    /// Appends whom the request counts for; says whether the key itself had a value.
    pub(crate) fn write(&self, ex: &Exchange<'_>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let found = self.write_value(ex, out);
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

/// Puts a digest in place of the end of the value that begins there. What is left is a byte longer than any
/// value that stands as it is, so none can pass for it.
#[cold]
fn digest_end(out: &mut Vec<u8>, value_at: usize) {
    let digest = digest(&SHA256, &out[value_at..]);
    out.truncate(value_at + VALUE_BYTES_MAX + 1 - 2 * SHA256_OUTPUT_LEN);
    for byte in digest.as_ref() {
        let _ = write!(out, "{byte:02x}");
    }
}

/// Ends the key of one of several rules, so that rules that find the same value count apart.
pub(crate) fn end_key_of_rule(rule: usize, key: &mut Vec<u8>) {
    let _ = write!(key, "#{}", rule + 1);
}

/// The place of the rule that [`end_key_of_rule`] wrote.
fn rule_of_key(key: &[u8]) -> Option<u8> {
    let at = key.iter().rposition(|byte| *byte == b'#')?;
    let number: usize = std::str::from_utf8(&key[at + 1..]).ok()?.parse().ok()?;
    Some(u8::try_from(number.checked_sub(1)?).unwrap_or(u8::MAX))
}

/// A number, or a text that gives one once its variables are in place.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum LimitAmount<const MIN: u64> {
    /// A number.
    Number(u64),
    /// A text with variables in it.
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

/// The largest number that APISIX counts exactly.
const NUMBER_MAX: u64 = (1 << 53) - 1;

/// An [`LimitAmount`], understood once.
#[derive(Debug)]
pub(crate) enum LimitQuantity<const MIN: u64> {
    /// Always this.
    Fixed(u64),
    /// What the text gives.
    Varying(VarTemplate),
    /// A text without variables that is no number of the kind asked for.
    Wrong,
}

impl<const MIN: u64> LimitQuantity<MIN> {
    /// Understands an amount once.
    pub(crate) fn new(amount: &LimitAmount<MIN>) -> LimitQuantity<MIN> {
        match amount {
            LimitAmount::Number(number) => LimitQuantity::Fixed(*number),
            LimitAmount::Text(text) if text.contains('$') => LimitQuantity::Varying(VarTemplate::parse(text)),
            LimitAmount::Text(text) => {
                number::<MIN>(text.as_bytes()).map_or(LimitQuantity::Wrong, LimitQuantity::Fixed)
            }
        }
    }

    /// The number for this exchange; `None` where the text gives no whole number of at least `MIN`.
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
            LimitQuantity::Wrong => None,
        }
    }
}

/// A whole number as people write it: `10`, ` 10 `, `1e3`, `10.0`.
fn number<const MIN: u64>(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let found = match text.parse::<u64>() {
        Ok(found) => found,
        Err(_) => {
            let found = text.parse::<f64>().ok()?;
            let whole = found.fract() == 0.0 && (0.0..=NUMBER_MAX as f64).contains(&found);
            whole.then_some(found as u64)?
        }
    };
    (MIN..=NUMBER_MAX).contains(&found).then_some(found)
}

/// Where counters are kept.
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
    /// In a Redis server found through sentinels.
    RedisSentinel,
}

/// Status of a refusal where none is written.
pub(crate) fn rejected_code() -> u16 {
    503
}

/// What a refused client gets.
pub(crate) fn refusal(status: u16, message: Option<&str>) -> LocalResponse {
    match message {
        Some(message) => LocalResponse::error_msg(status, message),
        None => LocalResponse::status(status),
    }
}

/// Holds an exchange back for so many seconds.
pub(crate) fn wait<'a>(ex: &Exchange<'_>, delay_s: f64) -> Step<'a> {
    let Some(delay) = held_back(delay_s) else { return Step::Continue };
    let sleep = ex.host.sleep(delay);
    Step::Wait(Box::pin(async move {
        sleep.await;
        Step::Continue
    }))
}

/// For how long an exchange is held back: not at all for less than a millisecond, nor for longer than a
/// day, whatever the burst allows.
pub(crate) fn held_back(delay_s: f64) -> Option<Duration> {
    const DELAY_S_MAX: f64 = 86_400.0;
    let delay = Duration::from_secs_f64(delay_s.min(DELAY_S_MAX));
    (delay >= Duration::from_millis(1)).then_some(delay)
}

/// Runs with memory that the next call on this thread uses again.
pub(crate) fn with_scratch<R>(run: impl FnOnce(&mut Vec<u8>) -> R) -> R {
    thread_local! {
        static SCRATCH: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.clear();
        if scratch.capacity() > 16 * 1024 {
            *scratch = Vec::new();
        }
        run(scratch)
    })
}
