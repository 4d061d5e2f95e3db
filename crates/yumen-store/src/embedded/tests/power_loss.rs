//! Failing disks and power losses, from seeds: acknowledged revisions survive, and no batch is applied in part.

use super::*;

/// Random transactions on top of `state`, batched as by the engine.
fn random_batch(random: &mut Random, state: &StoreState) -> (CommitBatch, StoreState, Vec<StoreState>) {
    let mut batch = CommitBatch { base: state.clone(), ..CommitBatch::default() };
    let (mut staged, mut states) = (state.clone(), Vec::new());
    for _ in 0..=random.below(3) {
        let mut draft = Draft::new(staged.clone(), now_ms());
        for _ in 0..=random.below(4) {
            let id = random.below(12).to_string();
            match random.below(5) {
                0 => drop(draft.delete(Kind::Routes, &id)),
                1 => draft.set(&id, (random.below(2) == 0).then_some("on")),
                _ => {
                    let length = random.below(3000) as usize;
                    draft.put(key(&id), format!("{}{}", random.next(), "-".repeat(length)).into(), None);
                }
            }
        }
        let finished = draft.finish(Authorship::by("test"));
        batch.revisions.extend(finished.committed);
        batch.settings.extend(finished.settings);
        staged = finished.state;
        states.push(staged.clone());
    }
    (batch, staged, states)
}

/// Required and possible content of the disk.
struct Expected {
    acknowledged: StoreState,
    doubtful: Vec<StoreState>,
    past: BTreeMap<u64, Contents>,
}

impl Expected {
    fn persist(&mut self, medium: &EmbeddedMedium, random: &mut Random) -> bool {
        let (batch, staged, states) = random_batch(random, &self.acknowledged);
        let persisted = medium.persist(&batch);
        match &persisted {
            Ok(()) => {
                self.doubtful.clear();
                self.learn(&states);
                self.acknowledged = staged;
            }
            Err(StoreError::Io(_) | StoreError::Full(_)) => self.doubtful.push(staged),
            Err(other) => panic!("{other:?}"),
        }
        persisted.is_ok()
    }

    fn learn(&mut self, states: &[StoreState]) {
        self.past.extend(states.iter().map(|state| (state.revision.0, contents(state))));
    }

    /// After a crash, the content must be the acknowledged one, or all of the doubtful batch.
    fn adopt(&mut self, loaded: &StoreState, medium: &EmbeddedMedium, seed: u64) {
        let allowed = std::iter::once(&self.acknowledged).chain(&self.doubtful);
        let same = |state: &&StoreState| contents(state) == contents(loaded);
        assert!(allowed.clone().any(|state| same(&state)), "seed {seed}: {:?}", loaded.revision);
        let was_acknowledged = same(&&self.acknowledged);
        self.doubtful.clear();
        self.acknowledged = loaded.clone();
        let mut state = loaded.clone();
        let history = medium.history(None, usize::MAX).unwrap();
        assert_eq!(history.len() as u64, loaded.revision.0, "seed {seed}");
        for committed in history {
            assert_eq!(committed.revision, state.revision, "seed {seed}");
            state.undo(&committed);
            // Settings have no history; intermediate states of a doubtful batch are unknown.
            if was_acknowledged && let Some(past) = self.past.get(&state.revision.0) {
                assert_eq!(contents(&state).1, past.1, "seed {seed}");
            }
        }
        if !was_acknowledged {
            self.past.clear();
        }
        self.learn(std::slice::from_ref(loaded));
    }
}

/// Failing writes and syncs, and power losses, in an order determined by the seed.
fn check_faults(seed: u64) -> (u32, u32) {
    let mut random = Random(seed);
    let disk = Disk::new(seed);
    let options = EmbeddedOptions { revisions_max: 100_000, ..EmbeddedOptions::default() };
    let (mut medium, state) = disk.load(options.clone()).unwrap();
    let mut expected = Expected { acknowledged: state, doubtful: Vec::new(), past: BTreeMap::new() };
    let (mut good, mut bad) = (0, 0);
    for _ in 0..60 {
        disk.fail([0, 5, 30, 200][random.below(4) as usize]);
        match expected.persist(&medium, &mut random) {
            true => good += 1,
            false => bad += 1,
        }
        // A failing disk may be unreadable, but it never shows a refused write.
        if let Ok(newest) = medium.history(None, 1) {
            let newest = newest.first().map_or(Revision(0), |committed| committed.revision);
            assert_eq!(newest, expected.acknowledged.revision, "seed {seed}");
        }
        match random.below(10) {
            0 => {
                disk.kill();
                drop(medium);
                disk.power_loss();
                disk.fail(0);
                let loaded = disk.load(options.clone()).unwrap();
                medium = loaded.0;
                expected.adopt(&loaded.1, &medium, seed);
            }
            1 => {
                // With space again, acknowledged writes are present without a restart.
                disk.fail(0);
                let newest = medium.history(None, 1).unwrap();
                let newest = newest.first().map_or(Revision(0), |committed| committed.revision);
                assert_eq!(newest, expected.acknowledged.revision, "seed {seed}");
                assert!(expected.persist(&medium, &mut random), "seed {seed}");
            }
            _ => {}
        }
    }
    disk.fail(0);
    drop(medium);
    let (medium, loaded) = disk.load(options).unwrap();
    expected.adopt(&loaded, &medium, seed);
    (good, bad)
}

#[test]
fn failing_disks_and_power_losses_lose_nothing_acknowledged_and_halve_nothing() {
    let (good, bad) = (0..40).map(check_faults).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    println!("{good} batches acknowledged, {bad} failed");
    assert!(good > 100 && bad > 100, "the faults must be neither too rare nor too many: {good}, {bad}");
}
