//! Nonces that signed requests have used, each with one key and until its signature expires. Knows no request.

use std::sync::Arc;
use std::time::Duration;

use yumen_plugin::{Now, PluginBuildContext};

use crate::limits::table::{KeyedState, TableShare, share};
use crate::limits::with_scratch;

/// Whether asking uses a nonce up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NonceUse {
    /// It does.
    Claim,
    /// It does not: the request is only thought through.
    Peek,
}

/// A nonce that was used.
#[derive(Debug, Default)]
struct UsedNonce {
    /// When a request with it is refused by its date, in milliseconds of the monotonic clock.
    until_ms: u64,
}

impl KeyedState for UsedNonce {
    fn useless_at_ms(&self) -> Option<u64> {
        Some(self.until_ms)
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        Some(vec![self.until_ms])
    }

    fn take_over(&mut self, numbers: &[u64], _now: Now) {
        if let [until_ms] = *numbers {
            self.until_ms = self.until_ms.max(until_ms);
        }
    }

    fn since(before: Option<&[u64]>, now: &[u64]) -> Option<Vec<u64>> {
        (before != Some(now)).then(|| now.to_vec())
    }
}

/// The nonces used at one object's plugin. They share the room of one table with those of other objects, see
/// [`crate::limits::table`].
pub(super) struct NonceTable(Arc<TableShare<UsedNonce>>);

impl NonceTable {
    pub(super) fn new(setup: &PluginBuildContext<'_>, plugin: &str) -> NonceTable {
        NonceTable(share(setup, plugin, setup.owner, 1))
    }

    /// Whether the nonce was not used with this key.
    pub(super) fn admits(
        &self,
        key_id: &str,
        nonce: &[u8],
        good_for: Duration,
        now: Now,
        nonce_use: NonceUse,
    ) -> bool {
        with_scratch(|key| {
            self.0.begin(0, key);
            // A field value holds no line feed, and both are parts of one.
            key.extend_from_slice(key_id.as_bytes());
            key.push(b'\n');
            key.extend_from_slice(nonce);
            let (table, now_ms) = (self.0.table(), now.mono_ms());
            let is_used = |used: &UsedNonce| used.until_ms > now_ms;
            if nonce_use == NonceUse::Peek {
                return !table.look(key, |used| Some(is_used(used))).unwrap_or(false);
            }
            table.change(key, now_ms, |used| {
                let is_admitted = !is_used(used);
                let until_ms = now_ms.saturating_add(good_for.as_millis() as u64);
                used.until_ms = used.until_ms.max(until_ms);
                is_admitted
            })
        })
    }
}
