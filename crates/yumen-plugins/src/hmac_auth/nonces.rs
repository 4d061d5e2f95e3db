//! Nonces of signed requests, stored per key until the signature expires.

use std::sync::Arc;
use std::time::Duration;

use yumen_plugin::{Now, PluginBuildContext};

use crate::limits::table::{KeyedState, TableShare, share};
use crate::limits::with_scratch;

/// Whether a check uses up the nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NonceUse {
    /// Check and use up, for a request.
    Claim,
    /// Check only, for a dry run.
    Peek,
}

/// A used nonce.
#[derive(Debug, Default)]
struct UsedNonce {
    /// Time at which `Date` refuses a repetition anyway, in milliseconds of the monotonic clock.
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

/// The used nonces of one object. All objects share one table and its bound, see [`crate::limits::table`].
pub(super) struct NonceTable(Arc<TableShare<UsedNonce>>);

impl NonceTable {
    pub(super) fn new(setup: &PluginBuildContext<'_>, plugin: &str) -> NonceTable {
        NonceTable(share(setup, plugin, setup.owner, 1))
    }

    /// Whether the nonce is unused with this key.
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
            // Unambiguous: neither a key id nor a nonce can contain a line feed, because both come from field
            // values.
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
                // A replay with a later `Date` remains refused for as long as that date is valid.
                used.until_ms = used.until_ms.max(until_ms);
                is_admitted
            })
        })
    }
}
