//! Memory budget of the notes that the printer makes about a message.

use std::io;

/// Bound of the notes as a multiple of the largest JSON.
const TIMES_MAX: usize = 4;
/// Smallest bound of the notes.
const BYTES_MIN: usize = 1 << 16;

/// Budget in bytes, charged by the capacity of the lists.
pub(super) struct NoteBudget {
    /// Largest JSON, for the problem.
    bytes_max: usize,
    pub(super) bytes_left: usize,
}

impl NoteBudget {
    pub(super) fn new(bytes_max: usize) -> NoteBudget {
        NoteBudget { bytes_max, bytes_left: bytes_max.saturating_mul(TIMES_MAX).max(BYTES_MIN) }
    }

    /// Appends a note. A growing list is charged twice while it moves.
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
        // The old and the new allocation exist at once while the elements move.
        let left = self.bytes_left.checked_sub(after * size_of::<T>());
        self.bytes_left = left.ok_or_else(|| self.too_many())? + before * size_of::<T>();
        list.reserve_exact(after - list.len());
        Ok(())
    }

    /// Returns the memory of a list to the budget.
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
