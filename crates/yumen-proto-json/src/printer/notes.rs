//! Memory budget of notes about one message.

use std::io;

/// Maximum ratio of notes to the limit of the JSON.
const TIMES_MAX: usize = 4;
/// Minimum budget, whatever the limit of the JSON.
const BYTES_MIN: usize = 1 << 16;

/// Memory of notes, counted by the capacity of their lists.
pub(super) struct NoteBudget {
    /// The limit of the JSON.
    bytes_max: usize,
    pub(super) bytes_left: usize,
}

impl NoteBudget {
    pub(super) fn new(bytes_max: usize) -> NoteBudget {
        NoteBudget { bytes_max, bytes_left: bytes_max.saturating_mul(TIMES_MAX).max(BYTES_MIN) }
    }

    /// Appends a note. A list that grows exists twice for a moment.
    pub(super) fn push<T>(&mut self, to: &mut Vec<T>, one: T) -> io::Result<()> {
        if to.len() == to.capacity() {
            self.grow(to)?;
        }
        to.push(one);
        Ok(())
    }

    #[cold]
    fn grow<T>(&mut self, list: &mut Vec<T>) -> io::Result<()> {
        let (before, after) = (list.capacity(), (list.capacity() * 2).max(4));
        let left = self.bytes_left.checked_sub(after * size_of::<T>());
        self.bytes_left = left.ok_or_else(|| self.too_many())? + before * size_of::<T>();
        list.reserve_exact(after - list.len());
        Ok(())
    }

    /// Releases the memory of notes.
    pub(super) fn free<T>(&mut self, list: Vec<T>) {
        self.bytes_left += list.capacity() * size_of::<T>();
    }

    fn too_many(&self) -> io::Error {
        let most = self.bytes_max;
        let problem =
            format!("its fields are in too many fragments for the {most} bytes of max_resp_body_size");
        io::Error::other(problem)
    }
}
