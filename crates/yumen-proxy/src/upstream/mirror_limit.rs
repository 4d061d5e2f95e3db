//! Room for copies of requests: how many a worker has under way, and what they hold.

use std::cell::Cell;
use std::rc::Rc;

/// MirrorLimiter of one worker that may be under way at once, and what they may hold together.
const COPIES_MAX: usize = 256;
const COPIED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// What copies of a worker hold.
#[derive(Default)]
pub(crate) struct MirrorLimiter {
    count: Cell<usize>,
    bytes: Cell<usize>,
    turn: Cell<usize>,
}

/// A place among the copies; free again when dropped.
pub(crate) struct MirrorPermit {
    copies: Rc<MirrorLimiter>,
    bytes: usize,
}

impl MirrorLimiter {
    /// A place for a copy with a body of so many bytes, unless that would be too much.
    pub(crate) fn take(self: &Rc<Self>, bytes: usize) -> Option<MirrorPermit> {
        if self.count.get() >= COPIES_MAX || self.bytes.get() + bytes > COPIED_BYTES_MAX {
            return None;
        }
        self.count.set(self.count.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
        Some(MirrorPermit { copies: self.clone(), bytes })
    }

    /// Whose turn it is among so many, one after the other; none of none.
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
        let places: Vec<MirrorPermit> = std::iter::from_fn(|| copies.take(1)).collect();
        assert_eq!(places.len(), COPIES_MAX);
        drop(places);
        let whole = copies.take(COPIED_BYTES_MAX);
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
