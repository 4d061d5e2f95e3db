//! `request-id`: assigns an id to every request, for the upstream and the client.

use std::cell::Cell;

use schemars::JsonSchema;
use serde::Deserialize;
use yumen_config::schema::InvalidSettings;
use yumen_plugin::{
    DryRunResult, Exchange, Now, PhaseSet, Plugin, PluginBuildContext, PluginFactory, PluginHost,
    ResponseHead, ResponseHeadPhase, Step,
};

/// Settings of `request-id`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct RequestIdSettings {
    /// Field with the id.
    #[serde(default = "x_request_id")]
    header_name: String,
    /// Whether the response carries the id.
    #[serde(default = "yes")]
    include_in_response: bool,
    /// Algorithm of the id.
    #[serde(default)]
    algorithm: IdAlgorithm,
    /// Characters and length for the algorithm `range_id`.
    #[serde(default)]
    range_id: IdCharset,
}

fn x_request_id() -> String {
    "X-Request-Id".to_owned()
}

fn yes() -> bool {
    true
}

/// Algorithm of the id.
#[derive(Debug, Clone, Copy, Default, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
enum IdAlgorithm {
    #[default]
    Uuid,
    Nanoid,
    RangeId,
    Ksuid,
    Uuidv7,
}

/// Parameters of the algorithm `range_id`.
#[derive(Debug, Deserialize, serde::Serialize, JsonSchema)]
#[schemars(inline)]
struct IdCharset {
    /// Length of an id in characters.
    #[serde(default = "sixteen")]
    #[schemars(range(min = 6))]
    length: usize,
    /// Characters of an id.
    #[serde(default = "char_set")]
    #[schemars(length(min = 6))]
    char_set: String,
}

fn sixteen() -> usize {
    16
}

/// The default of APISIX, in which `G` occurs twice and `J` is missing.
fn char_set() -> String {
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIGKLMNOPQRSTUVWXYZ0123456789".to_owned()
}

impl Default for IdCharset {
    fn default() -> IdCharset {
        IdCharset { length: sixteen(), char_set: char_set() }
    }
}

/// Longest id in characters, because every request carries one.
const LENGTH_MAX: usize = 1024;

/// The compiled settings.
pub(crate) struct RequestId {
    header_name: String,
    in_response: bool,
    algorithm: IdAlgorithm,
    range: IdCharset,
}

impl PluginFactory for RequestId {
    const NAME: &'static str = "request-id";
    const PRIORITY: i32 = 12015;
    type Config = RequestIdSettings;

    fn build(config: RequestIdSettings, setup: &PluginBuildContext<'_>) -> Result<Self, InvalidSettings> {
        if config.range_id.length > LENGTH_MAX {
            let message = format!("expected {} to be at most {LENGTH_MAX}", config.range_id.length);
            return Err(InvalidSettings::at("range_id.length", message));
        }
        if config.range_id.char_set.is_empty() {
            return Err(InvalidSettings::at(
                "range_id.char_set",
                "string too short, expected at least 6, got 0",
            ));
        }
        if !crate::text::is_field_name(&config.header_name) {
            return Err(InvalidSettings::at("header_name", "not the name of a header field"));
        }
        crate::text::warn_of_message_fields(setup, "header_name", true, [&config.header_name]);
        Ok(RequestId {
            header_name: config.header_name,
            in_response: config.include_in_response,
            algorithm: config.algorithm,
            range: config.range_id,
        })
    }
}

impl Plugin for RequestId {
    fn phases(&self) -> PhaseSet {
        if self.in_response { PhaseSet::REWRITE | PhaseSet::RESPONSE_HEAD } else { PhaseSet::REWRITE }
    }

    fn rewrite<'a>(&'a self, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // As in APISIX, the id of a proxy or client in front is kept.
        if ex.request.fields.get(&self.header_name).is_some_and(|id| !id.is_empty()) {
            return Step::Continue;
        }
        let fields = &mut ex.request.fields;
        match self.algorithm {
            IdAlgorithm::Uuid => fields.set(&self.header_name, &uuid_v4(ex.host)),
            IdAlgorithm::Uuidv7 => fields.set(&self.header_name, &uuid_v7(ex.host, ex.now)),
            IdAlgorithm::Nanoid => fields.set(&self.header_name, &nanoid(ex.host)),
            IdAlgorithm::Ksuid => fields.set(&self.header_name, &ksuid(ex.host, ex.now)),
            IdAlgorithm::RangeId => {
                let from = self.range.char_set.as_bytes();
                let draw = |_| from[(ex.host.random() % from.len() as u64) as usize];
                let id: Vec<u8> = (0..self.range.length).map(draw).collect();
                fields.set(&self.header_name, &id);
            }
        }
        Step::Continue
    }

    fn dry_run(&self, phase: PhaseSet, ex: &mut Exchange<'_>) -> DryRunResult {
        let name = &self.header_name;
        let note = match ex.request.fields.get(name).is_some_and(|id| !id.is_empty()) {
            true => format!("keeps the request id from {name}"),
            false => format!("gives an id in {name}, another one each time"),
        };
        match DryRunResult::by_running(self, phase, ex) {
            DryRunResult::Continue => DryRunResult::Note(note.into()),
            other => other,
        }
    }

    fn response_head(&self, ex: &mut ResponseHeadPhase<'_, '_>, head: &mut ResponseHead) {
        if head.fields.get(&self.header_name).is_some_and(|id| !id.is_empty()) {
            return;
        }
        // The request field is the storage of the id, so none is kept separately.
        if let Some(id) = ex.request.fields.get(&self.header_name) {
            head.fields.set(&self.header_name, id);
        }
    }
}

/// A UUID from 128 bits, with version and variant set (RFC 9562 §4).
fn uuid(high: u64, low: u64, version: u64) -> [u8; 36] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let high = (high & !0xf000) | (version << 12);
    let low = (low & !(0b11 << 62)) | (0b10 << 62);
    let bits = (u128::from(high) << 64) | u128::from(low);
    let mut text = [b'-'; 36];
    let mut shift = 128;
    for (at, byte) in text.iter_mut().enumerate() {
        if !matches!(at, 8 | 13 | 18 | 23) {
            shift -= 4;
            *byte = HEX[(bits >> shift) as usize & 15];
        }
    }
    text
}

fn uuid_v4(host: &dyn PluginHost) -> [u8; 36] {
    uuid(host.random(), host.random(), 4)
}

thread_local! {
    /// The millisecond of the last id on this worker, and the number of ids in it.
    static SEQUENCE: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// The ids of a worker ascend: 18 bits after the time count the ids of one millisecond (RFC 9562 §6.2, method
/// 1).
fn uuid_v7(host: &dyn PluginHost, now: Now) -> [u8; 36] {
    let (last_ms, count) = SEQUENCE.get();
    // If the clock steps back, or a millisecond has more ids than fit, the last time goes on.
    let (ms, count) = match now.unix_ms > last_ms {
        true => (now.unix_ms, 0),
        false if count < 0x3_ffff => (last_ms, count + 1),
        false => (last_ms + 1, 0),
    };
    SEQUENCE.set((ms, count));
    // 12 bits of the counter follow the time, 6 bits follow the variant.
    let low = ((count & 0x3f) << 56) | (host.random() >> 8);
    uuid((ms << 16) | (count >> 6), low, 7)
}

fn nanoid(host: &dyn PluginHost) -> [u8; 21] {
    const ALPHABET: &[u8; 64] = b"-_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let mut id = [0; 21];
    // One random number is enough for ten characters of six bits.
    for ten in id.chunks_mut(10) {
        let mut bits = host.random();
        for byte in ten {
            *byte = ALPHABET[(bits & 63) as usize];
            bits >>= 6;
        }
    }
    id
}

/// Seconds since the epoch of KSUID, 2014-05-13, and 128 random bits, in base 62.
fn ksuid(host: &dyn PluginHost, now: Now) -> [u8; 27] {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let seconds = now.unix_s().saturating_sub(1_400_000_000) as u32;
    let (high, low) = (host.random(), host.random());
    let mut words = [seconds, (high >> 32) as u32, high as u32, (low >> 32) as u32, low as u32];
    let mut id = [b'0'; 27];
    // Long division by 62 gives the digits, last one first.
    for byte in id.iter_mut().rev() {
        let mut rest = 0u64;
        for word in &mut words {
            let value = (rest << 32) | u64::from(*word);
            *word = (value / 62) as u32;
            rest = value % 62;
        }
        *byte = ALPHABET[rest as usize];
    }
    id
}

#[cfg(test)]
mod tests;
