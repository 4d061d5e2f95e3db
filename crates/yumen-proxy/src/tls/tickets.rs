//! Session tickets: sealed under keys that all workers share and that are replaced now and then.
//!
//! Knows neither clock nor randomness of keys: whoever runs the gateway gives new keys.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use rustls::server::ProducesTickets;

/// The bytes a ticket key is made of: its name, then the key of the cipher.
pub const TICKET_KEY_BYTES: usize = NAME_BYTES + 32;

const NAME_BYTES: usize = 16;
/// Tickets of the key in use and of the one before it are taken.
const KEYS_MAX: usize = 2;

/// The keys of tickets. What one gateway gives out another takes if both were given the same keys.
pub struct TicketKeys {
    /// Newest first; none at all means no tickets.
    keys: ArcSwap<Vec<Arc<TicketKey>>>,
    lifetime_s: u32,
}

struct TicketKey {
    /// What it was made of, for the process that takes over.
    bytes: [u8; TICKET_KEY_BYTES],
    name: [u8; NAME_BYTES],
    cipher: RandomizedNonceKey,
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TicketKeys({} keys)", self.keys.load().len())
    }
}

impl TicketKeys {
    /// No key yet; tickets are said to hold for `lifetime_s`, which is two turns of [`Self::rotate`].
    pub fn new(lifetime_s: u32) -> TicketKeys {
        TicketKeys { keys: ArcSwap::default(), lifetime_s }
    }

    /// Seals new tickets under this key from now on; the key before it is still taken, older ones are
    /// forgotten.
    pub fn rotate(&self, key: &[u8; TICKET_KEY_BYTES]) {
        let bytes = *key;
        let (name, cipher) = key.split_at(NAME_BYTES);
        let key = Arc::new(TicketKey {
            bytes,
            name: name.try_into().expect("split off at its length"),
            cipher: RandomizedNonceKey::new(&AES_256_GCM, cipher).expect("the length of this cipher's keys"),
        });
        self.keys.rcu(|before| {
            let kept = before.iter().take(KEYS_MAX - 1).cloned();
            std::iter::once(key.clone()).chain(kept).collect::<Vec<_>>()
        });
    }
}

impl TicketKeys {
    /// The keys that are taken, the oldest first, so that [`Self::rotate`] with each makes the same of them.
    pub fn told(&self) -> Vec<[u8; TICKET_KEY_BYTES]> {
        self.keys.load().iter().rev().map(|key| key.bytes).collect()
    }
}

/// Tickets for handshakes under the same rules: one given out under others does not open.
pub(super) struct BoundTickets {
    pub(super) keys: Arc<TicketKeys>,
    /// Names the rules.
    pub(super) binding: u128,
}

impl fmt::Debug for BoundTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.fmt(f)
    }
}

impl BoundTickets {
    fn aad(&self, name: &[u8; NAME_BYTES]) -> Aad<[u8; 16 + NAME_BYTES]> {
        let mut aad = [0; 16 + NAME_BYTES];
        aad[..16].copy_from_slice(&self.binding.to_be_bytes());
        aad[16..].copy_from_slice(name);
        Aad::from(aad)
    }
}

impl ProducesTickets for BoundTickets {
    fn enabled(&self) -> bool {
        !self.keys.keys.load().is_empty()
    }

    fn lifetime(&self) -> u32 {
        self.keys.lifetime_s
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys.keys.load();
        let key = keys.first()?;
        let mut text = plain.to_vec();
        let nonce = key.cipher.seal_in_place_append_tag(self.aad(&key.name), &mut text).ok()?;
        Some([&key.name[..], nonce.as_ref(), &text].concat())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE_LEN>()?;
        let keys = self.keys.keys.load();
        let key = keys.iter().find(|key| key.name == *name)?;
        let mut text = sealed.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = key.cipher.open_in_place(nonce, self.aad(name), &mut text).ok()?.len();
        text.truncate(opened);
        Some(text)
    }
}

#[cfg(test)]
mod tests;
