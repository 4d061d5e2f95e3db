use serde_json::json;

use super::table::{Slot, bounded_share};
use super::*;
use crate::testing::Bench;

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

#[test]
fn a_table_keeps_no_more_of_a_key_than_its_bound_and_tells_long_keys_apart() {
    let share = bounded_share::<Until>(4, 100);
    let table = share.table();
    let key = |text: &[u8]| {
        let mut key = Vec::new();
        share.begin(&mut key);
        key.extend_from_slice(text);
        key
    };
    let longest = [b'a'; 60_000];
    let mut other = longest;
    other[59_999] = b'b';
    let texts = [&b"short"[..], &longest[..56], &longest[..57], &longest, &other];
    for (at, text) in texts.iter().enumerate() {
        table.change(&key(text), 0, |slot| slot.0 = Some(at as u64));
    }
    let found = texts.map(|text| table.look(&key(text), |slot| slot.0));
    assert_eq!(found, [0, 1, 2, 3, 4].map(Some));
    let mut kept = Vec::new();
    table.each(|_, key, slot| kept.push((slot.0, key.to_vec())));
    kept.sort();
    assert_eq!((&kept[0].1[..], &kept[1].1[..]), (texts[0], texts[1]), "short keys stay as they are");
    assert!(kept.iter().all(|(_, key)| key.len() <= 57), "{kept:?}");
    // A client that says what is kept of another's key does not get at it, and handing it over does.
    for (until, kept) in &kept[2..] {
        assert!(table.look(&key(kept), |_| Some(())).is_none());
        let number = table.numbers_by_name()[""];
        assert_eq!(table.change_shown(number, kept, 0, |slot| slot.0), *until);
    }
}

#[test]
fn a_value_that_no_sane_client_has_stands_in_a_key_as_a_digest() {
    let bench = Bench::new();
    let written = |value: &str| {
        let mut out = b"12345678".to_vec();
        let found = Key::new("http_x_key", KeyType::Var)
            .write(&bench.exchange(&format!("GET / HTTP/1.1\nX-Key: {value}")), &mut out);
        assert!(found);
        String::from_utf8(out).expect("text")
    };
    let usual = "t".repeat(VALUE_BYTES_MAX);
    assert_eq!(written(&usual), format!("12345678={usual}"));
    let (long, other) = (written(&format!("{usual}x")), written(&format!("{usual}y")));
    assert_eq!((long.len(), other.len()), (9 + VALUE_BYTES_MAX + 1, 9 + VALUE_BYTES_MAX + 1));
    assert_ne!(long, other);
    assert_eq!(long, written(&format!("{usual}x")));
    assert_ne!(long, written(&long[9..]), "who says a digest does not get at what it stands for");
}

#[test]
fn clients_with_long_keys_are_limited_apart() {
    let bench = Bench::new();
    let plugin = bench.plugin("limit-count", json!({"count": 1, "time_window": 60, "key": "http_x_key"}));
    let mut status = |value: &str| {
        let request = format!("GET / HTTP/1.1\nX-Key: {value}{value:k>9000}");
        bench.run(&plugin, &request).status
    };
    assert_eq!(["a", "b", "a", "b", "c"].map(&mut status), [200, 200, 503, 503, 200]);
}
