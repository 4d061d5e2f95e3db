//! The bounds of mirrored requests: their number and their bytes, per worker.

use std::cell::Cell;
use std::rc::Rc;

/// The most mirrored requests of a worker at once, and the most bytes of their bodies together.
const MIRRORS_MAX: usize = 256;
const MIRRORED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Counts the mirrored requests of a worker.
#[derive(Default)]
pub(crate) struct MirrorLimiter {
    count: Cell<usize>,
    bytes: Cell<usize>,
    turn: Cell<usize>,
}

/// The right to one mirrored request; released on drop.
pub(crate) struct MirrorPermit {
    copies: Rc<MirrorLimiter>,
    bytes: usize,
}

impl MirrorLimiter {
    /// A permit for a request with a body of `bytes` bytes, within the bounds.
    pub(crate) fn take(self: &Rc<Self>, bytes: usize) -> Option<MirrorPermit> {
        if self.count.get() >= MIRRORS_MAX || self.bytes.get() + bytes > MIRRORED_BYTES_MAX {
            return None;
        }
        self.count.set(self.count.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        Some(MirrorPermit { copies: self.clone(), bytes })
    }

    /// The next of `among` endpoints, in turn; `None` if there are none.
    pub(crate) fn turn(&self, among: usize) -> Option<usize> {
        let index = self.turn.get().checked_rem(among)?;
        self.turn.set(self.turn.get().wrapping_add(1));
        Some(index)
    }
}

impl Drop for MirrorPermit {
    fn drop(&mut self) {
        self.copies.count.set(self.copies.count.get() - 1);
        self.copies.bytes.set(self.copies.bytes.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_copies_and_bytes() {
        let copies = Rc::<MirrorLimiter>::default();
        let permits: Vec<MirrorPermit> = std::iter::from_fn(|| copies.take(1)).collect();
        assert_eq!(permits.len(), MIRRORS_MAX);
        drop(permits);
        let whole = copies.take(MIRRORED_BYTES_MAX);
        assert!(whole.is_some() && copies.take(1).is_none() && copies.take(0).is_some());
        drop(whole);
        assert!(copies.take(1).is_some());
    }

    #[test]
    fn turns_go_round() {
        let copies = MirrorLimiter::default();
        let turns: Vec<Option<usize>> = (0..4).map(|_| copies.turn(3)).collect();
        assert_eq!(turns, [Some(0), Some(1), Some(2), Some(0)]);
        assert_eq!(copies.turn(0), None);
    }
}
