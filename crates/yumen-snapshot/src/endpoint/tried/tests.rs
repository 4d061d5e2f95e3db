use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn whatever_was_tried_is_remembered_and_nothing_else(
        indices in proptest::collection::vec(prop_oneof![0..700usize, 120..136usize], 0..40)
    ) {
        let (mut tried, mut naive) = (TriedEndpoints::default(), BTreeSet::new());
        for (count, index) in (1..).zip(indices) {
            tried.push(index);
            naive.insert(index);
            prop_assert_eq!(tried.count(), count);
            let remembered: Vec<usize> = (0..1000).filter(|index| tried.has(*index)).collect();
            prop_assert!(remembered.iter().eq(&naive), "{:?} instead of {:?}", remembered, naive);
        }
    }
}

#[test]
fn what_is_tried_is_no_larger_than_it_has_to_be() {
    assert_eq!(size_of::<TriedEndpoints>(), 32);
}
