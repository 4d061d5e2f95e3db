use super::*;

#[test]
fn a_table_keeps_objects_by_slot_over_the_end_of_a_block() {
    let mut table = SlotTable::default();
    for number in 0..200usize {
        assert_eq!(table.add(), number);
        assert_eq!(table.get(number), None);
        assert_eq!(table.set(number, Some(Arc::new(number))), None);
    }
    assert_eq!(table.set(64, None).as_deref(), Some(&64));
    let found: Vec<_> = table.iter().map(|one| one.map(|number| **number)).collect();
    let expected: Vec<_> = (0..200).map(|number| (number != 64).then_some(number)).collect();
    assert_eq!((table.len(), &found), (200, &expected));
    let by_slot: Vec<_> = (0..200).map(|slot| table.get(slot).map(|number| **number)).collect();
    assert_eq!(by_slot, expected);
    assert_eq!((table.get(200), table.get(100_000)), (None, None));
}

#[test]
fn a_change_copies_one_block_and_leaves_a_clone_as_it_was() {
    let mut table = SlotTable::default();
    for number in 0..130 {
        let slot = table.add();
        table.set(slot, Some(Arc::new(number)));
    }
    let before = table.clone();
    table.set(70, Some(Arc::new(7)));
    table.add();
    assert_eq!((before.get(70).map(|one| **one), before.len()), (Some(70), 130));
    assert_eq!((table.get(70).map(|one| **one), table.len()), (Some(7), 131));
    let shared = |at: usize| Arc::ptr_eq(&before.blocks[at], &table.blocks[at]);
    assert_eq!([0, 1, 2].map(shared), [true, false, true]);
}
