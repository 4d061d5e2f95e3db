//! Tables of counters as another process goes on with them: by the name of the limit and the key.
//!
//! Knows no plugin and what no number means.

use serde_json::{Map, Value, json};
use yumen_plugin::{Now, Portable};

use super::table::{Slot, Table};

impl<V: Slot + Send + Sync + 'static> Portable for Table<V> {
    fn tell(&self) -> Value {
        let mut told = Map::new();
        self.each(|name, key, slot| {
            let Some(numbers) = slot.numbers() else { return };
            let limit = told.entry(name).or_insert_with(|| json!({}));
            limit[hex(key)] = numbers.into();
        });
        if told.is_empty() { Value::Null } else { told.into() }
    }

    fn take_over(&self, told: &Value, now: Now) {
        let numbers_by_name = self.numbers_by_name();
        for (name, keys) in told.as_object().into_iter().flatten() {
            let Some(number) = numbers_by_name.get(name.as_str()) else { continue };
            for (key, told) in keys.as_object().into_iter().flatten() {
                let Some(key) = bytes(key) else { continue };
                self.change_shown(*number, &key, now.mono_ms(), |slot| slot.take_over(&numbers(told), now));
            }
        }
    }

    fn settles(&self) -> bool {
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
        if let Some(gone) = V::gone() {
            for (name, keys) in before.as_object().into_iter().flatten() {
                let is_gone = |key: &&String| now.get(name).is_none_or(|now| now.get(*key).is_none());
                for key in keys.as_object().into_iter().flat_map(Map::keys).filter(is_gone) {
                    let limit = since.entry(name.as_str()).or_insert_with(|| json!({}));
                    limit[key] = gone.clone().into();
                }
            }
        }
        if since.is_empty() { Value::Null } else { since.into() }
    }

    fn go_on_alone(&self) {
        self.each(|_, _, slot| slot.go_on_alone());
    }
}

fn numbers(told: &Value) -> Vec<u64> {
    told.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
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
