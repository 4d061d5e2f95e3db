//! The mirror against a model of etcd with injected faults; seeded.
//!
//! After every step, the served state equals etcd's state at its revision. At the end, it equals etcd's
//! current state.

use std::collections::BTreeMap;

use yumen_config::Kind;

use super::*;
use crate::test_kit::Random;

const SEEDS: u64 = 400;
const STEPS: usize = 250;
const KEYS: u64 = 12;

type Table = BTreeMap<String, KeyValue>;

/// Model of etcd from the view of a watch.
#[derive(Clone)]
struct SimulatedEtcd {
    cluster_id: u64,
    /// The table after each revision, with the events of the revision; the first is empty.
    revisions: Vec<(Table, Vec<KeyEvent>)>,
    /// Revisions below this index are compacted.
    compacted: usize,
}

impl SimulatedEtcd {
    fn new() -> SimulatedEtcd {
        SimulatedEtcd { cluster_id: 1, revisions: vec![Default::default(), Default::default()], compacted: 0 }
    }

    fn head(&self) -> ClusterHead {
        ClusterHead { cluster_id: self.cluster_id, revision: self.revisions.len() as u64 - 1 }
    }

    fn table(&self) -> &Table {
        &self.revisions[self.revisions.len() - 1].0
    }

    /// A transaction on some keys, including keys outside the store.
    fn write(&mut self, random: &mut Random) {
        let revision = self.revisions.len() as i64;
        let (mut table, mut events) = (self.table().clone(), BTreeMap::new());
        for _ in 0..=random.below(3) {
            let number = random.below(KEYS);
            let path = match random.below(6) {
                0 => format!("/apisix/elsewhere/{number}"),
                1 => format!("/apisix/upstreams/{number}"),
                _ => format!("/apisix/routes/{number}"),
            };
            if events.contains_key(&path) {
                continue;
            }
            let known = table.get(&path);
            if known.is_some() && random.below(3) == 0 {
                let deleted =
                    KeyValue { key: path.clone().into(), mod_revision: revision, ..KeyValue::default() };
                events.insert(path.clone(), KeyEvent { kind: 1, kv: Some(deleted) });
                table.remove(&path);
                continue;
            }
            let kv = KeyValue {
                key: path.clone().into(),
                create_revision: known.map_or(revision, |known| known.create_revision),
                mod_revision: revision,
                version: known.map_or(1, |known| known.version + 1),
                value: format!("{{\"written_at\":{revision}}}").into(),
                lease: 0,
            };
            events.insert(path.clone(), KeyEvent { kind: 0, kv: Some(kv.clone()) });
            table.insert(path, kv);
        }
        if random.below(2) == 0 {
            let kv = KeyValue {
                key: "/apisix/yumen/last_write".into(),
                create_revision: 1,
                mod_revision: revision,
                version: 1,
                value: format!("{{\"author\":\"a{revision}\",\"nonce\":\"n{revision}\"}}").into(),
                lease: 0,
            };
            events.insert("note".into(), KeyEvent { kind: 0, kv: Some(kv) });
        }
        self.revisions.push((table, events.into_values().collect()));
    }

    /// Replaces the cluster with an older copy, as a restore does.
    fn restore(&mut self, random: &mut Random) {
        let back = random.below(self.revisions.len() as u64 - 1) as usize;
        self.revisions.truncate(self.revisions.len() - back);
        self.compacted = self.compacted.min(self.revisions.len() - 1);
        self.cluster_id += 1;
    }

    fn listing(&self) -> KeyListing {
        KeyListing { head: self.head(), kvs: self.table().values().cloned().collect() }
    }
}

/// Content that a mirror should serve for a table.
fn expected(table: &Table) -> Vec<(String, String, u64, u64)> {
    let mut rows: Vec<_> = table
        .iter()
        .filter(|(path, _)| !path.contains("elsewhere"))
        .map(|(path, kv)| {
            let value = String::from_utf8(kv.value.to_vec()).unwrap();
            let name = path.trim_start_matches("/apisix/").to_owned();
            (name, value, kv.create_revision as u64, kv.mod_revision as u64)
        })
        .collect();
    rows.sort();
    rows
}

fn served(state: &StoreState) -> Vec<(String, String, u64, u64)> {
    let row = |(key, entry): (&ResourceKey, &StoreEntry)| {
        (key.to_string(), entry.json.to_string(), entry.created.0, entry.modified.0)
    };
    let mut rows: Vec<_> = state.entries().map(row).collect();
    rows.sort();
    rows
}

/// A watch with the index of its next revision.
struct SimulatedWatch {
    next: usize,
    /// Delivered events, for redelivery.
    delivered: Vec<Vec<KeyEvent>>,
}

struct MirrorSimulation {
    world: SimulatedEtcd,
    mirror: EtcdMirror,
    /// State that a follower builds from the revisions.
    replica: StoreState,
    wire: Option<SimulatedWatch>,
    random: Random,
    now_ms: u64,
}

impl MirrorSimulation {
    fn new(seed: u64) -> MirrorSimulation {
        MirrorSimulation {
            world: SimulatedEtcd::new(),
            mirror: EtcdMirror::new(KeyLayout::new("/apisix"), StoreState::default(), 0),
            replica: StoreState::default(),
            wire: None,
            random: Random(seed),
            now_ms: 1_000_000,
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..=6 => self.world.write(&mut self.random),
            7..=12 => self.receive(),
            13 => self.connect(),
            // The watch is lost with all undelivered events.
            14 => self.wire = None,
            15 => self.redeliver_events(),
            16 => {
                let head = self.world.head().revision as usize;
                self.world.compacted = self.world.compacted.max(self.random.below(head as u64 + 1) as usize);
            }
            // The clock jumps forwards or backwards.
            17 => self.now_ms = self.random.below(2_000_000),
            18 if self.random.below(12) == 0 => {
                self.world.restore(&mut self.random);
                self.wire = None;
            }
            _ => {}
        }
    }

    fn connect(&mut self) {
        if self.wire.is_some() {
            return;
        }
        let next = match self.mirror.need(self.world.head()) {
            MirrorNeed::Watch(from) if from as usize > self.world.compacted => from as usize,
            _ => self.list(),
        };
        self.wire = Some(SimulatedWatch { next, delivered: Vec::new() });
    }

    /// Lists all keys; returns the revision to watch from.
    fn list(&mut self) -> usize {
        let listing = self.world.listing();
        let taken = self.mirror.take_list(&listing, self.now_ms);
        self.check(&taken);
        assert!(!taken.is_out_of_step);
        listing.head.revision as usize + 1
    }

    /// Delivers several revisions at once, with their events in any order.
    fn receive(&mut self) {
        let Some(wire) = &mut self.wire else { return };
        let end = self.world.revisions.len().min(wire.next + self.random.below(4) as usize);
        if wire.next >= end {
            return;
        }
        let mut events: Vec<KeyEvent> =
            self.world.revisions[wire.next..end].iter().flat_map(|(_, events)| events.clone()).collect();
        for i in (1..events.len()).rev() {
            events.swap(i, self.random.below(i as u64 + 1) as usize);
        }
        wire.next = end;
        wire.delivered.push(events.clone());
        self.take(events);
    }

    /// Delivers former events again.
    fn redeliver_events(&mut self) {
        let Some(wire) = &self.wire else { return };
        if wire.delivered.is_empty() {
            return;
        }
        let events = wire.delivered[self.random.below(wire.delivered.len() as u64) as usize].clone();
        self.take(events);
    }

    fn take(&mut self, events: Vec<KeyEvent>) {
        let taken = self.mirror.take_events(events, self.now_ms);
        self.check(&taken);
        if taken.is_out_of_step {
            let next = self.list();
            self.wire = Some(SimulatedWatch { next, delivered: Vec::new() });
        }
    }

    /// After each delivered revision, the served state must equal etcd's state at that revision.
    fn check(&mut self, taken: &MirrorUpdate) {
        for committed in &taken.commits {
            for changed in &committed.changes {
                let before = self.replica.replace(&changed.key, changed.after.clone());
                assert_eq!(before, changed.before, "a change tells what was there");
                assert_ne!(changed.before, changed.after, "a change is one");
            }
            self.replica.revision = committed.revision;
            let (table, _) = &self.world.revisions[committed.revision.0 as usize];
            assert_eq!(served(&self.replica), expected(table), "revision {}", committed.revision.0);
        }
        assert_eq!(served(&self.replica), served(self.mirror.state()));
    }

    /// Delivers all pending events.
    fn settle(&mut self) {
        self.connect();
        while self.wire.as_ref().is_some_and(|wire| wire.next < self.world.revisions.len()) {
            self.receive();
        }
    }
}

#[test]
fn a_mirror_ends_where_the_store_is_and_serves_nothing_that_never_was() {
    for seed in 0..SEEDS {
        let mut run = MirrorSimulation::new(seed);
        (0..STEPS).for_each(|_| run.step());
        run.settle();
        assert_eq!(served(run.mirror.state()), expected(run.world.table()), "seed {seed}");
        assert!(run.mirror.problems().is_empty());
    }
}

/// No member behaves like this, but the node must recover if one does.
#[test]
fn batches_in_the_wrong_order_are_noticed() {
    let mut noticed = 0;
    for seed in 0..SEEDS {
        let mut run = MirrorSimulation::new(seed);
        (0..20).for_each(|_| run.world.write(&mut run.random));
        run.connect();
        for _ in 0..20 {
            run.world.write(&mut run.random);
            run.world.write(&mut run.random);
            let (first, second) = (run.world.revisions.len() - 2, run.world.revisions.len() - 1);
            for at in [second, first] {
                let events = run.world.revisions[at].1.clone();
                if run.mirror.take_events(events, 1).is_out_of_step {
                    run.mirror.take_list(&run.world.listing(), 1);
                    noticed += 1;
                }
            }
        }
        assert_eq!(served(run.mirror.state()), expected(run.world.table()), "seed {seed}");
    }
    assert!(noticed > 0);
}

/// Held objects and all others: no object is lost without a confirmation, and none remains after it.
#[test]
fn a_table_that_comes_and_goes_is_never_served_empty_without_a_word() {
    for seed in 0..SEEDS {
        let mut random = Random(seed);
        let mut mirror = EtcdMirror::new(KeyLayout::new("/apisix"), StoreState::default(), 50);
        let full = |revision: i64| -> Vec<KeyValue> {
            let kv = |i| KeyValue {
                key: format!("/apisix/routes/{i}").into(),
                create_revision: revision,
                mod_revision: revision,
                version: 1,
                value: "{}".into(),
                lease: 0,
            };
            (0..20).map(kv).collect()
        };
        let mut revision = 10;
        let mut kvs = full(revision);
        let list = |revision: i64, kvs: &[KeyValue]| KeyListing {
            head: ClusterHead { cluster_id: 1, revision: revision as u64 },
            kvs: kvs.to_vec(),
        };
        mirror.take_list(&list(revision, &kvs), 1);
        for _ in 0..30 {
            revision += 1;
            match random.below(3) {
                0 => kvs.clear(),
                1 => kvs = full(revision),
                _ => {}
            }
            mirror.take_list(&list(revision, &kvs), 1);
            assert_eq!(mirror.state().of_kind(Kind::Routes).count(), 20, "seed {seed}");
            assert_eq!(mirror.held(), 20 - kvs.len(), "seed {seed}");
        }
    }
}
