use super::table::{Slot, bounded_share};
use super::*;

#[test]
fn numbers_are_read_as_people_write_them() {
    let check = |text: &str, at_least_one: Option<u64>, any: Option<u64>| {
        assert_eq!(
            (number::<1>(text.as_bytes()), number::<0>(text.as_bytes())),
            (at_least_one, any),
            "{text}"
        );
    };
    check("10", Some(10), Some(10));
    check(" 10 ", Some(10), Some(10));
    check("1e3", Some(1000), Some(1000));
    check("10.0", Some(10), Some(10));
    check("0", None, Some(0));
    check("9007199254740991", Some(NUMBER_MAX), Some(NUMBER_MAX));
    for bad in ["", "a", "-1", "1.5", "9007199254740992", "1e30", "NaN", "inf", "10x"] {
        check(bad, None, None);
    }
}

#[derive(Default)]
struct Until(Option<u64>);

impl Slot for Until {
    fn useless_at_ms(&self) -> Option<u64> {
        self.0
    }
}

#[test]
fn a_table_forgets_useless_keys_first_and_never_grows_past_its_bound() {
    let share = bounded_share::<Until>(1, 100);
    let table = share.table();
    let insert = |key: u32, now_ms: u64, until_ms: Option<u64>| {
        table.change(&key.to_ne_bytes(), now_ms, |slot| slot.0 = until_ms);
    };
    for key in 0..1000 {
        insert(key, 10, Some(5));
        assert!(table.len() <= 33, "useless keys pile up: {}", table.len());
    }
    for key in 1000..2000 {
        insert(key, 10, Some(u64::from(key)));
        assert!(table.len() <= 100);
    }
    assert!(table.look(&1999u32.to_ne_bytes(), |_| Some(())).is_some(), "the newest is there");
    assert!(table.look(&1000u32.to_ne_bytes(), |_| Some(())).is_none(), "the oldest made room");
}

#[test]
fn keys_that_must_stay_stay() {
    let share = bounded_share::<Until>(1, 10);
    for key in 0..20u32 {
        share.table().change(&key.to_ne_bytes(), 0, |slot| slot.0 = None);
    }
    assert_eq!(share.table().len(), 20);
}
