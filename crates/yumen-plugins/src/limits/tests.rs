use serde_json::json;

use super::table::{KeyedState, TableShare, bounded_shares};
use super::*;
use crate::testing::PluginBench;

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

impl KeyedState for Until {
    fn useless_at_ms(&self) -> Option<u64> {
        self.0
    }
}

fn key_of(share: &TableShare<Until>, rule: usize, text: &[u8]) -> Vec<u8> {
    let mut key = Vec::new();
    share.begin(rule, &mut key);
    key.extend_from_slice(text);
    key
}

fn insert(share: &TableShare<Until>, rule: usize, number: u32, now_ms: u64, until_ms: Option<u64>) {
    let key = key_of(share, rule, &number.to_ne_bytes());
    share.table().change(&key, now_ms, |slot| slot.0 = until_ms);
}

fn is_present(share: &TableShare<Until>, rule: usize, number: u32) -> bool {
    share.table().look(&key_of(share, rule, &number.to_ne_bytes()), |_| Some(())).is_some()
}

/// Number of keys that each limit lost, by its object.
fn evicted(share: &TableShare<Until>) -> Vec<(String, u64)> {
    let mut all: Vec<_> = share.table().evictions().collect();
    all.sort();
    all
}

#[test]
fn a_table_forgets_useless_keys_first_and_never_grows_past_its_bound() {
    let share = &bounded_shares::<Until>(1, 100, &["routes/1"])[0];
    let table = share.table();
    for key in 0..1000 {
        insert(share, 0, key, 10, Some(5));
        assert!(table.len() <= 33, "useless keys pile up: {}", table.len());
    }
    assert_eq!(evicted(share), [("routes/1".to_owned(), 0)], "what has ended is not evicted");
    for key in 1000..2000 {
        insert(share, 0, key, 10, Some(u64::from(key)));
        assert!(table.len() <= 100);
    }
    assert!(is_present(share, 0, 1999), "the newest is there");
    assert!(!is_present(share, 0, 1000), "the oldest made room");
    let lost = 1000 - table.len() as u64;
    assert_eq!(evicted(share), [("routes/1".to_owned(), lost)], "all that have not ended are counted");
}

#[test]
fn keys_that_must_stay_stay() {
    let share = &bounded_shares::<Until>(1, 10, &["routes/1"])[0];
    for key in 0..20u32 {
        insert(share, 0, key, 0, None);
    }
    assert_eq!(share.table().len(), 20);
}

#[test]
fn made_up_keys_of_one_limit_evict_no_key_of_another() {
    let shares = bounded_shares::<Until>(4, 400, &["routes/login", "routes/open"]);
    let (login, open) = (&shares[0], &shares[1]);
    for key in 0..20 {
        insert(login, 0, key, 0, Some(1));
    }
    for key in 0..4000 {
        // The keys of the flood end later: by end alone, the others would be evicted first.
        insert(open, 0, key, 0, Some(u64::from(key) + 100));
        assert!(open.table().len() <= 400);
    }
    assert!((0..20).all(|key| is_present(login, 0, key)));
    let lost = evicted(open);
    assert_eq!(lost[0], ("routes/login".to_owned(), 0));
    assert!(lost[1].1 > 3000, "{lost:?}");
}

#[test]
fn made_up_keys_of_one_rule_evict_no_key_of_another_rule_of_the_limit() {
    let share = &bounded_shares::<Until>(4, 400, &["routes/1"])[0];
    for key in 0..20 {
        insert(share, 0, key, 0, Some(1));
    }
    for key in 0..4000 {
        insert(share, 1, key, 0, Some(100));
    }
    assert!((0..20).all(|key| is_present(share, 0, key)));
}

#[test]
fn keys_of_a_limit_that_is_gone_are_the_first_to_go() {
    let mut shares = bounded_shares::<Until>(1, 100, &["routes/1", "routes/2"]);
    let ended = shares.pop().expect("two");
    let share = shares.pop().expect("two");
    for key in 0..60 {
        insert(&ended, 0, key, 0, Some(1000));
    }
    drop(ended);
    for key in 0..60 {
        insert(&share, 0, key, 0, Some(10));
    }
    assert!((0..60).all(|key| is_present(&share, 0, key)));
    assert_eq!(evicted(&share), [("routes/1".to_owned(), 0)]);
}

#[test]
fn a_table_keeps_no_more_of_a_key_than_its_bound_and_tells_long_keys_apart() {
    let share = &bounded_shares::<Until>(4, 100, &[""])[0];
    let table = share.table();
    let key = |text: &[u8]| key_of(share, 0, text);
    let longest = [b'a'; 60_000];
    let mut other = longest;
    other[59_999] = b'b';
    let texts = [&b"short"[..], &longest[..56], &longest[..57], &longest, &other];
    for (at, text) in texts.iter().enumerate() {
        table.change(&key(text), 0, |slot| slot.0 = Some(at as u64));
    }
    let found = texts.map(|text| table.look(&key(text), |slot| slot.0));
    assert_eq!(found, [0, 1, 2, 3, 4].map(Some));
    let mut entries = Vec::new();
    table.each(|_, _, key, slot| entries.push((slot.0, key.to_vec())));
    entries.sort();
    assert_eq!((&entries[0].1[..], &entries[1].1[..]), (texts[0], texts[1]), "short keys stay as they are");
    assert!(entries.iter().all(|(_, key)| key.len() <= 57), "{entries:?}");
    // A client that sends the stored form of another key does not reach its counter; a handover does.
    for (until, entries) in &entries[2..] {
        assert!(table.look(&key(entries), |_| Some(())).is_none());
        let (number, _) = table.limits_by_name()[""];
        assert_eq!(table.change_shown(number, 0, entries, 0, |slot| slot.0), *until);
    }
}

#[test]
fn a_value_that_no_sane_client_has_stands_in_a_key_as_a_digest() {
    let bench = PluginBench::new();
    let written = |value: &str| {
        let mut out = b"12345678".to_vec();
        let found = LimitKey::new("http_x_key", LimitKeyType::Var)
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
    let bench = PluginBench::new();
    let plugin = bench.plugin("limit-count", json!({"count": 1, "time_window": 60, "key": "http_x_key"}));
    let mut status = |value: &str| {
        let request = format!("GET / HTTP/1.1\nX-Key: {value}{value:k>9000}");
        bench.run(&plugin, &request).status
    };
    assert_eq!(["a", "b", "a", "b", "c"].map(&mut status), [200, 200, 503, 503, 200]);
}

#[test]
fn a_flood_on_one_route_leaves_the_counters_of_another() {
    use super::table::KEYS_MAX;
    use crate::limits::usage;

    let mut bench = PluginBench::new();
    let tables = usage::metrics(&bench.carry);
    let settings = json!({"count": 1, "time_window": 60, "key": "http_x_key", "rejected_code": 429});
    let mut plugin_of = |owner: &str| {
        bench.owner = owner.to_owned();
        bench.plugin("limit-count", settings.clone())
    };
    let (login, open) = (plugin_of("routes/login"), plugin_of("routes/open"));
    let status = |plugin, key: &str| bench.run(plugin, &format!("GET / HTTP/1.1\nX-Key: {key}")).status;
    let users: Vec<String> = (0..50).map(|user| format!("user{user}")).collect();
    assert!(users.iter().all(|user| status(&login, user) == 200));
    let mut ex = bench.exchange("GET / HTTP/1.1\nX-Key: 0000000");
    for key in 0..KEYS_MAX + KEYS_MAX / 2 {
        ex.request.fields.set("X-Key", format!("{key:07}").as_bytes());
        let _ = open.access(&mut ex);
    }
    assert!(users.iter().all(|user| status(&login, user) == 429));
    let evictions = tables.evictions();
    assert_eq!(evictions.len(), 1, "{evictions:?}");
    assert_eq!((&*evictions[0].plugin, &*evictions[0].owner), ("limit-count", "routes/open"));
}
