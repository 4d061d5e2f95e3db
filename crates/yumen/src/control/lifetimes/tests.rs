use yumen_config::Kind;
use yumen_store::{Revision, StoreEntry};

use super::*;

fn entry(expires_ms: Option<u64>) -> StoreEntry {
    StoreEntry { json: "{}".into(), created: Revision(1), modified: Revision(1), expires_ms }
}

fn key(id: &str) -> ResourceKey {
    ResourceKey::new(Kind::Routes, id)
}

fn state(entries: &[(&str, Option<u64>)]) -> StoreState {
    let entries = entries.iter().map(|(id, expires_ms)| (key(id), entry(*expires_ms)));
    StoreState::new(Revision(1), entries, [])
}

/// Changes as text: `+a` for a put, `-a` for a deletion.
fn shown(changes: &[ConfigChange]) -> Vec<String> {
    let one = |change: &ConfigChange| match change {
        ConfigChange::Put(resource) => format!("+{}", resource.id),
        ConfigChange::Delete(_, id) => format!("-{id}"),
        other => panic!("{other:?}"),
    };
    changes.iter().map(one).collect()
}

fn over(lifetimes: &ObjectLifetimes) -> Vec<String> {
    lifetimes.problems().map(|problem| problem.object.to_string()).collect()
}

fn changed(id: &str, after: Option<Option<u64>>) -> EntryChange {
    EntryChange { key: key(id), before: None, after: after.map(entry) }
}

#[test]
fn objects_expired_before_the_start_are_not_served() {
    let mut lifetimes = ObjectLifetimes::default();
    let served = lifetimes.begin(&state(&[("ended", Some(5)), ("ends", Some(50)), ("stays", None)]), 5);
    let ids: Vec<&str> = served.iter().map(|one| &*one.id).collect();
    assert_eq!(ids, ["ends", "stays"]);
    assert_eq!(over(&lifetimes), ["routes/ended"]);
}

#[test]
fn undeleted_expired_objects_are_withheld_and_reported() {
    let mut lifetimes = ObjectLifetimes::default();
    lifetimes.begin(&state(&[("a", Some(50)), ("b", Some(60)), ("stays", None)]), 0);
    assert_eq!(lifetimes.until_due(0), Some(Duration::from_millis(50 + GRACE_MS)));
    assert_eq!(shown(&lifetimes.due(49 + GRACE_MS)), [""; 0]);
    assert_eq!(shown(&lifetimes.due(55 + GRACE_MS)), ["-a"]);
    assert_eq!(shown(&lifetimes.due(60 + GRACE_MS)), ["-b"]);
    assert_eq!(shown(&lifetimes.due(90 + GRACE_MS)), [""; 0]);
    assert_eq!(
        (over(&lifetimes), lifetimes.until_due(0)),
        (vec!["routes/a".into(), "routes/b".into()], None)
    );
    assert_eq!(shown(&[lifetimes.change(&changed("a", None), 5000)]), ["-a"]);
    assert_eq!(over(&lifetimes), ["routes/b"]);
}

#[test]
fn rewritten_object_has_its_newest_lifetime() {
    let mut lifetimes = ObjectLifetimes::default();
    lifetimes.begin(&state(&[("longer", Some(50)), ("forever", Some(50)), ("back", Some(1))]), 10);
    assert_eq!(shown(&[lifetimes.change(&changed("longer", Some(Some(5000))), 20)]), ["+longer"]);
    assert_eq!(shown(&[lifetimes.change(&changed("forever", Some(None)), 20)]), ["+forever"]);
    assert_eq!(shown(&[lifetimes.change(&changed("back", Some(None)), 20)]), ["+back"]);
    assert_eq!(shown(&[lifetimes.change(&changed("late", Some(Some(20))), 20)]), ["-late"]);
    assert_eq!(over(&lifetimes), ["routes/late"]);
    assert_eq!(shown(&lifetimes.due(4000)), [""; 0]);
    assert_eq!(shown(&lifetimes.due(5000 + GRACE_MS)), ["-longer"]);
}
