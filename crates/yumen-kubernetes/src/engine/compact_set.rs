//! An ordered set for the many sets of the engine that have one member or few.

use std::collections::{BTreeSet, btree_set};

/// A set with more members becomes a tree. A leaf of a `BTreeSet` has room for eleven.
const FEW_MAX: usize = 16;

#[derive(Debug, Clone)]
pub(super) enum CompactSet<T> {
    /// In order, without spare capacity.
    Few(Vec<T>),
    Many(BTreeSet<T>),
}

impl<T> Default for CompactSet<T> {
    fn default() -> Self {
        CompactSet::Few(Vec::new())
    }
}

impl<T: Ord> CompactSet<T> {
    pub(super) fn insert(&mut self, member: T) {
        match self {
            CompactSet::Few(members) => {
                let Err(at) = members.binary_search(&member) else { return };
                if members.len() < FEW_MAX {
                    members.reserve_exact(1);
                    members.insert(at, member);
                    return;
                }
                let mut many: BTreeSet<T> = std::mem::take(members).into_iter().collect();
                many.insert(member);
                *self = CompactSet::Many(many);
            }
            CompactSet::Many(members) => {
                members.insert(member);
            }
        }
    }

    pub(super) fn remove(&mut self, member: &T) {
        match self {
            CompactSet::Few(members) => {
                if let Ok(at) = members.binary_search(member) {
                    members.remove(at);
                }
            }
            CompactSet::Many(members) => {
                members.remove(member);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            CompactSet::Few(members) => members.is_empty(),
            CompactSet::Many(members) => members.is_empty(),
        }
    }

    pub(super) fn iter(&self) -> CompactIter<'_, T> {
        match self {
            CompactSet::Few(members) => CompactIter::Few(members.iter()),
            CompactSet::Many(members) => CompactIter::Many(members.iter()),
        }
    }
}

impl<'s, T: Ord> IntoIterator for &'s CompactSet<T> {
    type Item = &'s T;
    type IntoIter = CompactIter<'s, T>;

    fn into_iter(self) -> CompactIter<'s, T> {
        self.iter()
    }
}

/// The members in order.
pub(super) enum CompactIter<'s, T> {
    Few(std::slice::Iter<'s, T>),
    Many(btree_set::Iter<'s, T>),
}

impl<'s, T> Iterator for CompactIter<'s, T> {
    type Item = &'s T;

    fn next(&mut self) -> Option<&'s T> {
        match self {
            CompactIter::Few(members) => members.next(),
            CompactIter::Many(members) => members.next(),
        }
    }
}

/// The members of the ordered slice `of` that the ordered slice `other` lacks.
pub(super) fn difference<'s, T: Ord>(of: &'s [T], other: &'s [T]) -> impl Iterator<Item = &'s T> {
    of.iter().filter(|member| other.binary_search(member).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_any_size_has_its_members_once_and_in_order() {
        let mut set = CompactSet::default();
        for count in 1..=40u32 {
            set.insert((count * 7) % 41);
            set.insert((count * 7) % 41);
            let expected: BTreeSet<u32> = (1..=count).map(|number| (number * 7) % 41).collect();
            assert!(set.iter().eq(expected.iter()), "{count} members");
        }
        for count in (1..=40u32).rev() {
            assert!(!set.is_empty());
            set.remove(&((count * 7) % 41));
            set.remove(&99);
        }
        assert!(set.is_empty());
    }

    #[test]
    fn the_difference_of_slices_has_what_the_other_lacks() {
        assert!(difference(&[1, 3, 5, 9], &[3, 4, 9]).eq([1, 5].iter()));
        assert!(difference(&[1], &[]).eq([1].iter()));
        assert!(difference::<u8>(&[], &[1]).next().is_none());
    }
}
