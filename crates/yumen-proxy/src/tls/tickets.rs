//! Session tickets, encrypted with keys that all workers share and that rotate.
//!
//! Keys are supplied by the caller. Independent of clocks or key generation.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use rustls::server::ProducesTickets;

/// Bytes of a ticket key: its name, then the cipher key.
pub const TICKET_KEY_BYTES: usize = NAME_BYTES + 32;

const NAME_BYTES: usize = 16;
/// Tickets of the current and the previous key are accepted.
const KEYS_MAX: usize = 2;

/// The ticket keys. Gateways with the same keys accept each other's tickets.
pub struct TicketKeys {
    /// Newest first; tickets are disabled while empty.
    keys: ArcSwap<Vec<Arc<TicketKey>>>,
    lifetime_s: u32,
}

struct TicketKey {
    /// The original bytes, for the successor process.
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
    /// Creates a set without keys. `lifetime_s` is the lifetime of tickets in seconds, two intervals of
    /// [`Self::rotate`].
    pub fn new(lifetime_s: u32) -> TicketKeys {
        TicketKeys { keys: ArcSwap::default(), lifetime_s }
    }

    /// Encrypts new tickets with this key. The previous key still decrypts; older keys are removed.
    pub fn rotate(&self, key: &[u8; TICKET_KEY_BYTES]) {
        let bytes = *key;
        let (name, cipher) = key.split_at(NAME_BYTES);
        let key = Arc::new(TicketKey {
            bytes,
            name: name.try_into().expect("split off at its length"),
            cipher: RandomizedNonceKey::new(&AES_256_GCM, cipher).expect("the length of this cipher's keys"),
        });
        self.keys.rcu(|before| {
            let previous = before.iter().take(KEYS_MAX - 1).cloned();
            std::iter::once(key.clone()).chain(previous).collect::<Vec<_>>()
        });
    }
}

impl TicketKeys {
    /// The accepted keys, oldest first: passing each to [`Self::rotate`] restores the set.
    pub fn export(&self) -> Vec<[u8; TICKET_KEY_BYTES]> {
        self.keys.load().iter().rev().map(|key| key.bytes).collect()
    }
}

/// Tickets bound to handshake rules. A ticket issued under other rules does not decrypt.
pub(super) struct BoundTickets {
    pub(super) keys: Arc<TicketKeys>,
    /// The id of the rules, part of the additional authenticated data.
    pub(super) binding: u128,
}

impl fmt::Debug for BoundTickets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.keys.fmt(f)
    }
}

impl BoundTickets {
    fn aad(&self, name: &[u8; NAME_BYTES]) -> Aad<[u8; 16 + NAME_BYTES]> {
        // Binding and key name are authenticated: a ticket of other rules does not decrypt.
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
        // Uniqueness matters to encryption only, where the cipher draws the nonce.
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = key.cipher.open_in_place(nonce, self.aad(name), &mut text).ok()?.len();
        text.truncate(opened);
        Some(text)
    }
}

#[cfg(test)]
mod tests;
