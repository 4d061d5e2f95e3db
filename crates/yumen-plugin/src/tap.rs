//! Taps: bounded copies of bodies for loggers, made while the bodies are forwarded.

use std::cell::Cell;
use std::rc::Rc;

/// Maximum number of tapped bytes on one worker: 64 MiB.
const TAPPED_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The tapped bytes of one worker. Beyond the limit taps stay short.
#[derive(Debug, Clone, Default)]
pub struct TapBudget {
    bytes: Rc<Cell<usize>>,
}

/// A bounded copy of the begin of a body.
#[derive(Debug)]
pub struct BodyTap {
    bytes: Vec<u8>,
    bytes_max: usize,
    budget: TapBudget,
}

impl BodyTap {
    /// A tap of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize, budget: TapBudget) -> BodyTap {
        BodyTap { bytes: Vec::new(), bytes_max, budget }
    }

    /// Copies the next bytes of the body, as far as the bounds allow.
    pub fn take(&mut self, data: &[u8]) {
        let used = self.budget.bytes.get();
        let room = (self.bytes_max - self.bytes.len()).min(TAPPED_BYTES_MAX.saturating_sub(used));
        let data = &data[..data.len().min(room)];
        self.bytes.extend_from_slice(data);
        self.budget.bytes.set(used + data.len());
    }

    /// Whether the tap needs no more bytes.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= self.bytes_max
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Replaces the bytes.
    pub fn set_bytes(&mut self, bytes: Vec<u8>) {
        let used = self.budget.bytes.get() + bytes.len();
        self.budget.bytes.set(used.saturating_sub(self.bytes.len()));
        self.bytes = bytes;
    }
}

impl Drop for BodyTap {
    fn drop(&mut self) {
        let used = self.budget.bytes.get();
        self.budget.bytes.set(used.saturating_sub(self.bytes.len()));
    }
}

/// The taps of one exchange.
#[derive(Debug, Default)]
pub(crate) struct BodyTaps {
    /// Required size of the request tap; 0 without one.
    pub(crate) request_bytes_max: usize,
    /// Required size of the response tap; 0 without one.
    pub(crate) response_bytes_max: usize,
    pub(crate) request: Option<Box<BodyTap>>,
    pub(crate) response: Option<Box<BodyTap>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_takes_the_begin_of_a_body() {
        let budget = TapBudget::default();
        let mut tap = BodyTap::new(5, budget.clone());
        tap.take(b"abc");
        assert!(!tap.is_full());
        tap.take(b"defg");
        assert_eq!((tap.bytes(), tap.is_full()), (&b"abcde"[..], true));
        tap.take(b"h");
        assert_eq!((tap.bytes(), budget.bytes.get()), (&b"abcde"[..], 5));
        tap.set_bytes(b"******".to_vec());
        assert_eq!(budget.bytes.get(), 6);
        drop(tap);
        assert_eq!(budget.bytes.get(), 0);
    }

    #[test]
    fn taps_of_a_worker_share_a_limit() {
        let budget = TapBudget::default();
        let mut first = BodyTap::new(TAPPED_BYTES_MAX, budget.clone());
        first.take(&vec![b'x'; TAPPED_BYTES_MAX - 1]);
        let mut second = BodyTap::new(10, budget);
        second.take(b"abc");
        assert_eq!(second.bytes(), b"a");
        drop(first);
        second.take(b"bc");
        assert_eq!(second.bytes(), b"abc");
    }
}
