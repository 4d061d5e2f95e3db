//! Export and import of counter tables between processes, by the name of the limit and the key.

use std::ops::Range;

use serde_json::{Map, Value, json};
use yumen_plugin::{Now, PortableState};

use super::rule_of_key;
use super::table::{KEPT_BYTES_DIGESTED, KeyedState, LimitTable};

impl<V: KeyedState + Send + Sync + 'static> PortableState for LimitTable<V> {
    fn export(&self) -> Value {
        let mut exported = Map::new();
        self.each(|limit, rule, key, slot| {
            let Some(numbers) = slot.numbers() else { return };
            let exported = exported.entry(&*limit.name).or_insert_with(|| json!({}));
            exported[written_key(limit.rules, rule, key)] = numbers.into();
        });
        if exported.is_empty() { Value::Null } else { exported.into() }
    }

    fn take_over(&self, exported: &Value, now: Now) {
        let limits = self.limits_by_name();
        for (name, keys) in exported.as_object().into_iter().flatten() {
            // The configuration of this process may lack the limit.
            let Some((number, rules)) = limits.get(name.as_str()) else { continue };
            for (written, exported) in keys.as_object().into_iter().flatten() {
                let Some((of_rules, key)) = read_key(*rules, written) else { continue };
                for rule in of_rules {
                    let take_over = |slot: &mut V| slot.take_over(&numbers(exported), now);
                    self.change_shown(*number, rule, &key, now.mono_ms(), take_over);
                }
            }
        }
    }

    fn exports_while_draining(&self) -> bool {
        true
    }

    fn since(&self, before: &Value, now: &Value) -> Value {
        let mut since = Map::new();
        for (name, keys) in now.as_object().into_iter().flatten() {
            for (key, now) in keys.as_object().into_iter().flatten() {
                let before = before.get(name).and_then(|keys| keys.get(key)).map(numbers);
                let Some(more) = V::since(before.as_deref(), &numbers(now)) else { continue };
                let limit = since.entry(name.as_str()).or_insert_with(|| json!({}));
                limit[key] = more.into();
            }
        }
        if let Some(ended) = V::ended() {
            // The successor has the last export of these keys, which is no longer true.
            for (name, keys) in before.as_object().into_iter().flatten() {
                let is_removed = |key: &&String| now.get(name).is_none_or(|now| now.get(*key).is_none());
                for key in keys.as_object().into_iter().flat_map(Map::keys).filter(is_removed) {
                    let limit = since.entry(name.as_str()).or_insert_with(|| json!({}));
                    limit[key] = ended.clone().into();
                }
            }
        }
        if since.is_empty() { Value::Null } else { since.into() }
    }

    fn go_on_alone(&self) {
        self.each(|_, _, _, slot| slot.go_on_alone());
    }
}

/// A key as exported. A digest does not contain its rule, so the rule is its prefix.
fn written_key(rules: usize, rule: u8, key: &[u8]) -> String {
    match rules > 1 && key.len() == KEPT_BYTES_DIGESTED {
        true => format!("{rule}:{}", hex(key)),
        false => hex(key),
    }
}

/// An imported key with the rules that it may belong to. A digest without a prefix, from an older version,
/// may belong to every rule; requests of the other rules do not find it.
fn read_key(rules: usize, written: &str) -> Option<(Range<u8>, Vec<u8>)> {
    let last = u8::try_from(rules.saturating_sub(1)).unwrap_or(u8::MAX);
    let one = |rule: u8| rule..rule.saturating_add(1);
    if let Some((rule, key)) = written.split_once(':') {
        return Some((one(rule.parse().ok()?), bytes(key)?));
    }
    let key = bytes(written)?;
    let of_rules = match rules > 1 {
        false => one(0),
        true if key.len() == KEPT_BYTES_DIGESTED => 0..last.saturating_add(1),
        true => one(rule_of_key(&key)?.min(last)),
    };
    Some((of_rules, key))
}

fn numbers(exported: &Value) -> Vec<u64> {
    exported.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

fn bytes(hex: &str) -> Option<Vec<u8>> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some((digit(*high)? << 4 | digit(*low)?) as u8),
        _ => None,
    };
    hex.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests;
