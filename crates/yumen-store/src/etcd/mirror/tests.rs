//! Results of listings and events in the mirror.

use yumen_config::Kind;

use super::*;
use crate::test_kit::key;

fn kv(path: &str, value: &str, created: i64, modified: i64) -> KeyValue {
    KeyValue {
        key: path.to_owned().into(),
        create_revision: created,
        mod_revision: modified,
        version: 1,
        value: value.to_owned().into(),
        lease: 0,
    }
}

fn put(path: &str, value: &str, created: i64, modified: i64) -> KeyEvent {
    KeyEvent { kind: 0, kv: Some(kv(path, value, created, modified)) }
}

fn delete(path: &str, at: i64) -> KeyEvent {
    KeyEvent { kind: 1, kv: Some(kv(path, "", 0, at)) }
}

fn list(revision: u64, kvs: Vec<KeyValue>) -> KeyListing {
    KeyListing { head: ClusterHead { cluster_id: 1, revision }, kvs }
}

fn route(id: usize) -> String {
    format!("/apisix/routes/{id}")
}

/// A mirror with `count` routes as of revision 100.
fn mirror_of(count: usize, hold_percent: u32) -> EtcdMirror {
    let mut mirror = EtcdMirror::new(KeyLayout::new("/apisix"), StoreState::default(), hold_percent);
    let kvs = (0..count).map(|i| kv(&route(i), "{}", 10, 10)).collect();
    mirror.take_list(&list(100, kvs), 5);
    mirror
}

fn revisions(taken: &MirrorUpdate) -> Vec<u64> {
    taken.commits.iter().map(|committed| committed.revision.0).collect()
}

#[test]
fn listing_is_one_revision_of_all_differences() {
    let mut mirror = mirror_of(3, 50);
    let next = vec![
        kv(&route(0), "{}", 10, 10),
        kv(&route(1), r#"{"v":2}"#, 10, 120),
        kv(&route(9), "{}", 130, 130),
    ];
    let taken = mirror.take_list(&list(140, next), 7);
    let [committed] = &taken.commits[..] else { panic!("{taken:?}") };
    let names: Vec<String> = committed.changes.iter().map(|changed| changed.key.to_string()).collect();
    assert_eq!((committed.revision.0, committed.time_ms), (140, 7));
    assert_eq!(names, ["routes/1", "routes/2", "routes/9"]);
    // The same content again is no change, whatever else happened in the cluster.
    let same = mirror.state().entries().map(|(key, entry)| {
        kv(&format!("/apisix/{key}"), &entry.json, entry.created.0 as i64, entry.modified.0 as i64)
    });
    let same = same.collect();
    assert!(mirror.take_list(&list(150, same), 8).commits.is_empty());
    assert_eq!((mirror.state().revision.0, mirror.seen()), (140, 150));
}

#[test]
fn events_without_effect_advance_the_head_only() {
    let mut mirror = mirror_of(2, 50);
    let position = |mirror: &EtcdMirror| (mirror.changed_at(), mirror.state().revision.0, mirror.seen());
    // A listing shows the last writes only: as of revision 100, no object is newer than 10.
    assert_eq!(position(&mirror), (10, 100, 100));
    mirror.take_events(vec![put("/apisix/yumen/nodes/a", "{}", 101, 101)], 5);
    assert_eq!(position(&mirror), (10, 100, 101));
    mirror.take_events(vec![delete(&route(1), 102), put("/apisix/yumen/nodes/a", "{}", 101, 103)], 5);
    assert_eq!(position(&mirror), (102, 102, 103));
    mirror.take_list(&list(104, vec![kv(&route(0), "{}", 10, 10)]), 5);
    assert_eq!(position(&mirror), (102, 102, 104), "a list does not tell of deletions");
    mirror.take_list(&list(90, vec![kv(&route(0), "{}", 10, 10)]), 5);
    assert_eq!(position(&mirror), (10, 102, 90), "an older copy begins anew");
}

#[test]
fn each_revision_a_watch_tells_is_one_whoever_wrote_it() {
    let mut mirror = mirror_of(1, 50);
    let note = r#"{"author":"ada","reason":"why not","time_ms":42,"nonce":"n"}"#;
    let taken = mirror.take_events(
        vec![
            put(&route(2), "{}", 102, 102),
            put(&route(1), "{}", 101, 101),
            put("/apisix/yumen/last_write", note, 50, 101),
            put("/apisix/elsewhere/x", "{}", 103, 103),
            delete(&route(0), 104),
        ],
        9,
    );
    assert_eq!(revisions(&taken), [101, 102, 104]);
    let by: Vec<(&str, u64)> =
        taken.commits.iter().map(|committed| (&*committed.by.author, committed.time_ms)).collect();
    assert_eq!(by, [("ada", 42), (FOREIGN, 9), (FOREIGN, 9)]);
    assert_eq!(taken.commits[0].by.reason.as_deref(), Some("why not"));
    assert_eq!((mirror.revision_of("n"), mirror.revision_of("m")), (Some(101), None));
    assert_eq!(mirror.expected(&KeyRole::Note), 101);
}

#[test]
fn repeated_events_are_ignored_and_missed_ones_detected() {
    for (events, is_out_of_step) in [
        // Known event.
        (vec![put(&route(0), "{}", 10, 10)], false),
        (vec![delete(&route(7), 60)], false),
        // Event older than the listing and missing from it.
        (vec![put(&route(0), r#"{"v":2}"#, 10, 90)], true),
        (vec![put(&route(8), "{}", 90, 90)], true),
        (vec![delete(&route(0), 90)], true),
        // Event that refers to an undelivered past.
        (vec![put(&route(8), "{}", 90, 101)], true),
        (vec![delete(&route(8), 101)], true),
    ] {
        let mut mirror = mirror_of(2, 50);
        let before: Vec<_> =
            mirror.state().entries().map(|(key, entry)| (key.clone(), entry.clone())).collect();
        let taken = mirror.take_events(events.clone(), 1);
        assert_eq!((taken.commits.len(), taken.is_out_of_step), (0, is_out_of_step), "{events:?}");
        assert!(mirror.state().entries().map(|(key, entry)| (key.clone(), entry.clone())).eq(before));
    }
}

#[test]
fn compacted_watch_requires_a_listing() {
    let head = |cluster_id, revision| ClusterHead { cluster_id, revision };
    let fresh = EtcdMirror::new(KeyLayout::new("/apisix"), StoreState::default(), 50);
    assert_eq!(fresh.need(head(1, 5)), MirrorNeed::List);
    let mirror = mirror_of(1, 50);
    for (head, need) in [
        (head(1, 100), MirrorNeed::Watch(101)),
        (head(1, 500), MirrorNeed::Watch(101)),
        // The cluster was restored from a copy, or replaced by another.
        (head(1, 99), MirrorNeed::List),
        (head(2, 500), MirrorNeed::List),
    ] {
        assert_eq!(mirror.need(head), need, "{head:?}");
    }
}

#[test]
fn deletions_are_held_when_they_are_many_and_much() {
    for (count, percent, deleted, has_note, held) in [
        (100, 50, 51, false, 51),
        (100, 50, 50, false, 0),
        (100, 10, 11, false, 11),
        (12, 50, 9, false, 0),
        (12, 50, 12, false, 12),
        (100, 0, 100, false, 0),
        // The write came through a gateway, which confirms large deletions itself.
        (100, 50, 100, true, 0),
    ] {
        let line = format!("{deleted} of {count} at {percent} %, {has_note}");
        let mut mirror = mirror_of(count, percent);
        let mut events: Vec<KeyEvent> = (0..deleted).map(|i| delete(&route(i), 101)).collect();
        if has_note {
            events.push(put("/apisix/yumen/last_write", r#"{"author":"ada"}"#, 50, 101));
        }
        mirror.take_events(events, 1);
        assert_eq!(mirror.held(), held, "{line}");
        assert_eq!(mirror.state().len(), count - deleted + held, "{line}");
        assert_eq!(mirror.problems().len(), usize::from(held > 0), "{line}");
        // A listing shows the same content, but not the author of the deletion.
        let mut listed = mirror_of(count, percent);
        listed.take_list(&list(101, (deleted..count).map(|i| kv(&route(i), "{}", 10, 10)).collect()), 1);
        if !has_note {
            assert_eq!(listed.held(), held, "{line}, listed");
        }
    }
}

/// Deletes the routes of a mirror of 15 one by one, starting at `from_ms`, `interval_ms` apart.
fn trickle(mirror: &mut EtcdMirror, from_ms: u64, interval_ms: u64) {
    for i in 0..15 {
        mirror.take_events(vec![delete(&route(i), 101 + i as i64)], from_ms + i as u64 * interval_ms);
    }
}

#[test]
fn deletions_that_trickle_in_are_held_like_a_batch() {
    for (interval_ms, percent, held) in [
        (20, 50, 15),
        (4_000, 50, 15),
        // Never ten within a minute.
        (7_000, 50, 0),
        (20, 0, 0),
        // No number exceeds this share.
        (20, 100, 0),
    ] {
        let line = format!("{interval_ms} ms apart at {percent} %");
        let mut mirror = mirror_of(15, percent);
        trickle(&mut mirror, 1_000_000, interval_ms);
        assert_eq!((mirror.held(), mirror.state().len()), (held, held), "{line}");
        assert_eq!(mirror.problems().len(), usize::from(held > 0), "{line}");
    }
}

#[test]
fn deletions_that_had_passed_are_undone_by_one_revision_and_confirmed_with_the_rest() {
    let mut mirror = mirror_of(15, 50);
    let mut replica = mirror.state().clone();
    for i in 0..15 {
        let taken = mirror.take_events(vec![delete(&route(i), 101 + i as i64)], 1_000 + i as u64);
        let changes: Vec<usize> = taken.commits.iter().map(|committed| committed.changes.len()).collect();
        let expected: &[usize] = if i < 9 { &[1] } else { &[9] };
        assert_eq!(changes, if i > 9 { &[] } else { expected }, "deletion {i}");
        for changed in taken.commits.iter().flat_map(|committed| &committed.changes) {
            assert_eq!(replica.replace(&changed.key, changed.after.clone()), changed.before);
        }
    }
    assert!(replica.entries().eq(mirror.state().entries()));
    let problem = mirror.problems()[0].to_string();
    assert!(problem.contains("15 objects were deleted in etcd within a short time"), "{problem}");
    assert_eq!(mirror.expected(&KeyRole::Resource(key("3"))), 0, "it is gone in etcd");
    mirror.take_events(vec![put(CONFIRMATION, &word_about("n", &mirror), 120, 120)], 2_000);
    assert_eq!((mirror.held(), mirror.state().len()), (0, 0));
}

#[test]
fn a_deletion_counts_no_more_once_it_was_undone_or_confirmed_or_is_old() {
    let ready = || {
        let mut mirror = mirror_of(15, 50);
        mirror.take_events((0..9).map(|i| delete(&route(i), 101)).collect(), 1_000_000);
        assert_eq!((mirror.held(), mirror.state().len()), (0, 6));
        mirror
    };
    let lose_one = |mirror: &mut EtcdMirror, now_ms| {
        mirror.take_events(vec![delete(&route(9), 110)], now_ms);
        mirror.held()
    };
    assert_eq!(lose_one(&mut ready(), 1_000_001), 10);
    assert_eq!(lose_one(&mut ready(), 1_060_001), 0, "a minute has passed");
    assert_eq!(lose_one(&mut ready(), 1), 0, "the clock was set back");
    let mut back = ready();
    back.take_events(vec![put(&route(0), "{}", 102, 102)], 1_000_000);
    assert_eq!(lose_one(&mut back, 1_000_001), 0, "one is there again");
    let mut confirmed = ready();
    confirmed.take_events(vec![put(CONFIRMATION, "{}", 102, 102)], 1_000_000);
    assert_eq!(lose_one(&mut confirmed, 1_000_001), 0, "somebody confirmed");
}

#[test]
fn a_batch_that_is_much_by_itself_undoes_no_deletion_before_it() {
    let mut mirror = mirror_of(20, 50);
    mirror.take_events(vec![delete(&route(19), 101)], 1_000);
    mirror.take_events((0..19).map(|i| delete(&route(i), 102)).collect(), 1_001);
    assert_eq!((mirror.held(), mirror.state().len()), (19, 19));
}

#[test]
fn a_revoked_credential_stays_revoked() {
    let mut mirror = mirror_of(12, 50);
    let consumer = "/apisix/consumers/ada";
    mirror.take_events(vec![put(consumer, r#"{"username":"ada"}"#, 101, 101)], 1_000);
    mirror.take_events(vec![delete(consumer, 102)], 1_001);
    for i in 0..12 {
        mirror.take_events(vec![delete(&route(i), 103 + i as i64)], 1_002);
    }
    assert_eq!((mirror.held(), mirror.state().len()), (12, 12));
    assert!(mirror.state().get(Kind::Consumers, "ada").is_none());
}

#[test]
fn held_deletions_end_by_confirmation_or_return() {
    let mut mirror = mirror_of(20, 50);
    mirror.take_events((0..20).map(|i| delete(&route(i), 101)).collect(), 1);
    assert_eq!((mirror.held(), mirror.expected(&KeyRole::Resource(key("3")))), (20, 0));
    let back = mirror.take_events(vec![put(&route(3), r#"{"v":3}"#, 102, 102)], 1);
    assert_eq!((revisions(&back), mirror.held()), (vec![102], 19));
    // Another listing without a confirmation keeps the hold.
    assert!(mirror.take_list(&list(110, vec![kv(&route(3), r#"{"v":3}"#, 102, 102)]), 1).commits.is_empty());
    assert_eq!(mirror.held(), 19);
    let mut other = EtcdMirror::new(KeyLayout::new("/apisix"), mirror.state().clone(), 50);
    let word = word_about("n", &mirror);
    let confirmed = mirror.take_events(vec![put(CONFIRMATION, &word, 111, 111)], 1);
    assert_eq!((confirmed.commits[0].changes.len(), mirror.held(), mirror.state().len()), (19, 0, 1));
    // A mirror that was disconnected meanwhile finds the confirmation in the listing.
    let listing = list(120, vec![kv(&route(3), r#"{"v":3}"#, 102, 102), kv(CONFIRMATION, &word, 111, 111)]);
    other.take_list(&listing, 1);
    assert_eq!((other.held(), other.state().len()), (0, 1));
    // That confirmation does not cover later deletions.
    let (mut again, kvs) = (EtcdMirror::new(KeyLayout::new("/apisix"), other.state().clone(), 50), 0..20);
    let mut full: Vec<KeyValue> = kvs.map(|i| kv(&route(i), "{}", 130, 130)).collect();
    full.push(kv(CONFIRMATION, &word, 111, 111));
    again.take_list(&list(140, full), 1);
    again.take_list(&list(150, vec![kv(CONFIRMATION, &word, 111, 111)]), 1);
    assert_eq!((again.held(), again.state().len()), (20, 20));
}

const CONFIRMATION: &str = "/apisix/yumen/confirmed";

/// Confirmation of a node with the same held deletions.
fn word_about(nonce: &str, holding: &EtcdMirror) -> String {
    let note = WriteNote { nonce: nonce.into(), ..WriteNote::default() };
    DeletionConfirmation::about(note, &holding.held_names()).to_json()
}

#[test]
fn a_word_of_another_copy_confirms_nothing_here() {
    // In the other cluster, objects of the same ids were deleted with a confirmation.
    let mut other = mirror_of(20, 50);
    other.take_list(&list(90, (0..20).map(|i| kv(&route(i), "{}", 80, 80)).collect()), 1);
    other.take_list(&list(95, Vec::new()), 1);
    assert_eq!(other.held(), 20);
    let foreign = word_about("foreign", &other);
    // This cluster also had a confirmation when it was copied. The objects then returned unchanged.
    let mut mirror = mirror_of(20, 50);
    mirror.take_list(&list(101, Vec::new()), 1);
    let own = word_about("own", &mirror);
    mirror.take_events(vec![put(CONFIRMATION, &own, 102, 102)], 1);
    assert_eq!(mirror.state().len(), 0);
    mirror.take_list(&list(100, (0..20).map(|i| kv(&route(i), "{}", 10, 10)).collect()), 1);
    assert_eq!(mirror.state().len(), 20);
    // The deletion of the key meanwhile does not make the confirmation valid again.
    mirror.take_events(vec![put(CONFIRMATION, &own, 102, 102), delete(CONFIRMATION, 103)], 1);
    for (word, held) in [(foreign.as_str(), 20), (own.as_str(), 20), ("{}", 20), ("x", 20)] {
        for mut mirror in [
            mirror.clone(),
            // After a restart.
            EtcdMirror::new(KeyLayout::new("/apisix"), mirror.state().clone(), 50),
        ] {
            mirror.take_list(&list(120, vec![kv(CONFIRMATION, word, 110, 110)]), 1);
            assert_eq!((mirror.held(), mirror.state().len()), (held, 20), "{word}");
        }
        // While the hold lasts, only an unnamed confirmation, as of older versions, can refer to it.
        let mut watching = mirror.clone();
        watching.take_list(&list(120, Vec::new()), 1);
        watching.take_events(vec![put(CONFIRMATION, word, 121, 121)], 1);
        let held = if word.contains("nonce") { held } else { 0 };
        assert_eq!(watching.held(), held, "{word}, watched");
    }
}

#[test]
fn expired_objects_are_not_held() {
    // Some of these objects expire at 1000; the listing lacks these and others.
    for (lasting, ending, others, now_ms, held) in [
        (1, 12, 0, 1000, 0),
        (1, 12, 0, 999, 12),
        // The rest is judged as if the expired objects had never existed.
        (18, 20, 10, 1000, 10),
        (20, 20, 10, 1000, 0),
    ] {
        let line = format!("{ending} of {lasting} and {others} others at {now_ms}");
        let mut mirror = EtcdMirror::new(KeyLayout::new("/apisix"), StoreState::default(), 50);
        mirror.note_lease(7, 1000, 1);
        let leased = |i: usize| KeyValue { lease: 7, ..kv(&format!("/apisix/routes/t{i}"), "{}", 10, 10) };
        let all = (0..lasting).map(|i| kv(&route(i), "{}", 10, 10)).chain((0..ending).map(leased));
        mirror.take_list(&list(100, all.collect()), 5);
        // After a restart, as on a node that was down.
        for mut mirror in [EtcdMirror::new(KeyLayout::new("/apisix"), mirror.state().clone(), 50), mirror] {
            let left = (others..lasting).map(|i| kv(&route(i), "{}", 10, 10)).collect();
            mirror.take_list(&list(101, left), now_ms);
            assert_eq!((mirror.held(), mirror.state().len()), (held, lasting - others + held), "{line}");
        }
    }
}

#[test]
fn deletions_beyond_a_confirmation_are_judged_separately() {
    for (own, held) in [(6, 0), (15, 15)] {
        // Both mirrors hold the shared objects; only one holds the additional ones.
        let (mut one, mut other) = (mirror_of(30, 50), mirror_of(30 + own, 50));
        for mirror in [&mut one, &mut other] {
            mirror.take_list(&list(101, Vec::new()), 1);
        }
        assert_eq!((one.held(), other.held()), (30, 30 + own));
        other.take_events(vec![put(CONFIRMATION, &word_about("n", &one), 102, 102)], 1);
        assert_eq!((other.held(), other.state().len()), (held, held), "{own}");
    }
}

#[test]
fn a_value_that_cannot_be_read_leaves_the_last_good_one() {
    let mut mirror = mirror_of(1, 50);
    for (revision, value, problems, version) in [
        (101, r#"{"v":1}"#, 0, "{\"v\":1}"),
        (102, "init_dir", 1, "{\"v\":1}"),
        (103, "[]", 1, "{\"v\":1}"),
        // Control planes of APISIX write line breaks in strings as they are.
        (104, "{ \"v\" : 2, \"w\": \"a\nb\" }", 0, "{\"v\":2,\"w\":\"a\\nb\"}"),
    ] {
        mirror.take_events(vec![put(&route(0), value, 10, revision)], 1);
        assert_eq!(mirror.problems().len(), problems, "{value}");
        assert_eq!(&*mirror.state().get(Kind::Routes, "0").unwrap().json, version);
        assert_eq!(mirror.expected(&KeyRole::Resource(key("0"))), revision as u64);
    }
    // The same in a listing.
    mirror.take_list(&list(110, vec![kv(&route(0), "no", 10, 105)]), 1);
    assert_eq!((mirror.problems().len(), mirror.state().len(), mirror.held()), (1, 1, 0));
    let problem = mirror.problems()[0].to_string();
    assert!(problem.contains("routes/0") && problem.contains("/apisix/routes/0"), "{problem}");
}

#[test]
fn keys_among_objects_that_name_none_are_one_problem_until_they_are_gone() {
    let mut mirror = mirror_of(1, 50);
    let messages =
        |mirror: &EtcdMirror| mirror.problems().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert!(messages(&mirror).is_empty());
    let taken = mirror.take_events(vec![put("/apisix/routes/we ird/ü", "{}", 110, 110)], 6);
    assert!(taken.commits.is_empty() && !taken.is_out_of_step);
    let [one] = &messages(&mirror)[..] else { panic!("{:?}", messages(&mirror)) };
    assert!(one.contains("the key /apisix/routes/we ird/ü in etcd names no object"), "{one}");
    for number in 0..50 {
        let at = 111 + number;
        mirror.take_events(vec![put(&format!("/apisix/routes/x/{number}"), "{}", at, at)], 6);
    }
    let [one] = &messages(&mirror)[..] else { panic!("{:?}", messages(&mirror)) };
    assert!(one.contains("and 50 more like it"), "{one}");
    mirror.take_list(
        &list(170, vec![kv(&route(0), "{}", 10, 10), kv("/apisix/routes/a/b", "{}", 165, 165)]),
        7,
    );
    assert!(messages(&mirror)[0].contains("/apisix/routes/a/b"));
    mirror.take_events(vec![delete("/apisix/routes/a/b", 171)], 8);
    assert!(messages(&mirror).is_empty());
}
