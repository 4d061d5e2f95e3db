//! Counters continue in a successor, by limit and key, while their windows are open.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use yumen_plugin::Plugin;

use super::{KEPT_BYTES_DIGESTED, bytes, hex, read_key, written_key};
use crate::testing::PluginBench;

/// Number of these requests that are admitted.
fn admitted(bench: &PluginBench, plugin: &Arc<dyn Plugin>, requests: usize) -> usize {
    (0..requests).filter(|_| bench.run(plugin, "GET / HTTP/1.1").status == 200).count()
}

/// Checks that the new process continues the counts of the old one, then counts in parallel for `elapsed`.
#[track_caller]
fn check(name: &str, settings: &Value, before: usize, elapsed: Duration, other_count: usize, left: usize) {
    let (old, new) = (PluginBench::new(), PluginBench::new());
    let of_old = old.plugin(name, settings.clone());
    // Creates another limit first: limits are found by name, not by creation order.
    let _other = new.plugin(name, {
        let mut other = settings.clone();
        other["rejected_code"] = 418.into();
        other
    });
    let of_new = new.plugin(name, settings.clone());
    assert_eq!(admitted(&old, &of_old, before), before);
    let exported = old.carry.export();
    for bench in [&old, &new] {
        bench.host.advance(elapsed);
    }
    new.carry.take_over(&exported, new.host.now());
    assert_eq!(admitted(&old, &of_old, other_count), other_count);
    let (since, now) = old.carry.export_since(&exported);
    new.carry.take_over(&since, new.host.now());
    assert!(old.carry.export_since(&now).0.is_empty(), "what was exported is not exported again");
    assert_eq!(admitted(&new, &of_new, 100), left, "{name} {settings}");
}

#[test]
fn limits_continue_in_the_successor() {
    let moment = Duration::from_millis(10);
    let count = json!({"count": 10, "time_window": 60});
    check("limit-count", &count, 6, moment, 0, 4);
    check("limit-count", &count, 6, moment, 3, 1);
    check("limit-count", &count, 0, moment, 3, 7);
    check("limit-count", &count, 10, Duration::from_secs(61), 0, 10);
    check("limit-count", &count, 10, Duration::from_secs(61), 2, 8);
    let sliding = json!({"count": 10, "time_window": 60, "window_type": "sliding"});
    check("limit-count", &sliding, 6, moment, 1, 3);
    let rate = json!({"rate": 0.1, "burst": 9, "key": "remote_addr", "nodelay": true});
    check("limit-req", &rate, 6, moment, 0, 4);
    check("limit-req", &rate, 6, moment, 2, 2);
    check("limit-req", &rate, 6, Duration::from_secs(600), 0, 10);
}

#[test]
fn exchanges_under_way_in_the_process_before_count_until_they_end() {
    let settings = json!({"conn": 3, "burst": 0, "default_conn_delay": 0.1, "key": "remote_addr"});
    let (old, new) = (PluginBench::new(), PluginBench::new());
    let (of_old, of_new) =
        (old.plugin("limit-conn", settings.clone()), new.plugin("limit-conn", settings.clone()));
    let request = "GET / HTTP/1.1";
    let begin = |bench: &'static PluginBench, plugin: &Arc<dyn Plugin>| {
        let mut ex = bench.exchange(request);
        bench.admit(std::slice::from_ref(plugin), &mut ex, request).is_none().then_some(ex)
    };
    // Leaked, because exchanges borrow them.
    let (old, new): (&PluginBench, &PluginBench) = (Box::leak(Box::new(old)), Box::leak(Box::new(new)));
    let first = begin(old, &of_old);
    let second = begin(old, &of_old);
    assert!(first.is_some() && second.is_some());
    let mut exported = old.carry.export();
    new.carry.take_over(&exported, new.host.now());
    let mut export = || {
        let (since, now) = old.carry.export_since(&exported);
        exported = now;
        new.carry.take_over(&since, new.host.now());
        since.len()
    };
    let third = begin(new, &of_new);
    assert!(third.is_some() && begin(new, &of_new).is_none(), "two there and one here");
    assert_eq!(export(), 0, "nothing has changed");
    drop(first);
    assert_eq!(export(), 1);
    let fourth = begin(new, &of_new);
    assert!(fourth.is_some() && begin(new, &of_new).is_none(), "one there and two here");
    drop(second);
    assert_eq!((export(), export()), (1, 0), "the last one's end is exported, once");
    let fifth = begin(new, &of_new);
    assert!(fifth.is_some() && begin(new, &of_new).is_none(), "all three here");
    drop((third, fourth, fifth));
    // A process that is killed exports nothing more.
    let sixth = begin(old, &of_old);
    assert_eq!((sixth.is_some(), export()), (true, 1));
    let here = [begin(new, &of_new), begin(new, &of_new), begin(new, &of_new)];
    assert_eq!(here.iter().flatten().count(), 2);
    new.carry.go_on_alone();
    assert!(begin(new, &of_new).is_some());
}

#[test]
fn a_long_key_is_the_same_one_in_the_next_process() {
    let (old, new) = (PluginBench::new(), PluginBench::new());
    let settings = json!({"count": 2, "time_window": 60, "key": "http_x_key"});
    let _other = new.plugin("limit-count", json!({"count": 2, "time_window": 60}));
    let plugins = [&old, &new].map(|bench| bench.plugin("limit-count", settings.clone()));
    let request = format!("GET / HTTP/1.1\nX-Key: {}", "k".repeat(3000));
    assert_eq!(old.run(&plugins[0], &request).status, 200);
    let exported = old.carry.export();
    new.carry.take_over(&exported, new.host.now());
    assert_eq!([(); 2].map(|()| new.run(&plugins[1], &request).status), [200, 503]);
    assert_eq!(old.run(&plugins[0], &request).status, 200);
    let hexes: Vec<usize> = exported
        .values()
        .flat_map(|exported| exported.as_object().into_iter().flatten())
        .flat_map(|(_, keys)| keys.as_object().into_iter().flatten().map(|(key, _)| key.len()))
        .collect();
    assert_eq!(hexes, [2 * 57]);
}

#[test]
fn long_keys_of_several_rules_go_on_under_their_rules() {
    let settings = json!({"rules": [
        {"count": 9, "time_window": 60, "key": "$http_x_a"},
        {"count": 2, "time_window": 60, "key": "$http_x_b"},
    ]});
    let request = format!("GET / HTTP/1.1\nX-A: {0}\nX-B: {0}", "k".repeat(3000));
    for is_from_older_version in [false, true] {
        let (old, new) = (PluginBench::new(), PluginBench::new());
        let plugins = [&old, &new].map(|bench| bench.plugin("limit-count", settings.clone()));
        assert_eq!(old.run(&plugins[0], &request).status, 200);
        let mut exported = old.carry.export();
        if is_from_older_version {
            // The older version exports digests without their rules.
            for limits in exported.values_mut().filter_map(Value::as_object_mut) {
                for keys in limits.values_mut().filter_map(Value::as_object_mut) {
                    *keys = std::mem::take(keys)
                        .into_iter()
                        .map(|(key, numbers)| (key.split(':').next_back().unwrap_or("").to_owned(), numbers))
                        .collect();
                }
            }
        }
        new.carry.take_over(&exported, new.host.now());
        assert_eq!([(); 2].map(|()| new.run(&plugins[1], &request).status), [200, 503]);
    }
}

#[test]
fn exported_keys_are_imported_under_their_rule() {
    let digest = vec![7; KEPT_BYTES_DIGESTED];
    for (rules, rule, key) in [
        (1, 0, b"=a#3".to_vec()),
        (1, 0, digest.clone()),
        (3, 0, b"=a#1".to_vec()),
        (3, 2, b"=a#2#3".to_vec()),
        (3, 1, digest),
    ] {
        let exported = written_key(rules, rule, &key);
        assert_eq!(read_key(rules, &exported), Some((rule..rule + 1, key)), "{exported}");
    }
    for exported in ["x:00", "1:0", "0", "3d61"] {
        assert_eq!(read_key(3, exported), None, "{exported}");
    }
}

#[test]
fn unknown_formats_of_another_version_are_skipped() {
    let bench = PluginBench::new();
    let plugin = bench.plugin("limit-count", json!({"count": 2, "time_window": 60}));
    for exported in
        [json!(7), json!({"routes/1": 7}), json!({"routes/1": {"zz": [1], "00": ["x"]}}), Value::Null]
    {
        bench.carry.take_over(&[("limit-count".to_owned(), exported)].into(), bench.host.now());
    }
    assert_eq!(admitted(&bench, &plugin, 3), 2);
}

#[test]
fn keys_of_any_bytes_are_exported() {
    for key in [&b""[..], b"\0\xff", b"key"] {
        assert_eq!(bytes(&hex(key)).as_deref(), Some(key));
    }
    assert_eq!((bytes("0"), bytes("0g"), bytes("\u{e9}")), (None, None, None));
}
