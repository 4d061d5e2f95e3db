//! The watch machine against a model API server, on virtual time, with seeded faults.
//!
//! Invariants: every state that the outputs describe is one that the API server had; its version never decreases; once
//! faults end, it is the state of the API server; a kind that was removed leaves no objects; requests are paced.
//! `SIM_SEEDS=from..to cargo test -p yumen-kubernetes-client simulation` runs other seeds than the usual ones.

mod model;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::error::ApiError;
use crate::kind::WatchedKind;
use crate::object::{ObjectPage, RawObject, RawObjectChange};
use crate::watch_machine::{SILENCE_MS, WatchInput, WatchMachine, WatchOutput, WatchStep};
use model::{ModelServer, ObjectVersions, SimulationRandom};

/// The end of faults, of changes, and of a run, in milliseconds. The settling time covers a silent watch, the longest
/// pause and the time of an absent kind.
const FAULTS_END_MS: u64 = 1_200_000;
const CHANGES_END_MS: u64 = 1_500_000;
const RUN_END_MS: u64 = 2_000_000;

/// Faults and outputs that occurred, over all seeds.
type Coverage = BTreeMap<&'static str, u64>;

/// A defect of the mirror, which the simulation must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MirrorFlaw {
    Nothing,
    /// Objects that a list does not name stay.
    KeepsMissing,
    /// Deletions of the watch are ignored.
    KeepsDeleted,
}

/// The objects as an owner of the outputs sees them.
struct Mirror {
    objects: ObjectVersions,
    version: u64,
    flaw: MirrorFlaw,
}

impl Mirror {
    fn apply(
        &mut self,
        output: WatchOutput,
        listed: Option<u64>,
        is_withdrawal_due: bool,
        server: &ModelServer,
    ) -> Result<(), String> {
        let (version, reason) = match output {
            WatchOutput::Replaced(objects) => {
                let objects: ObjectVersions = objects.iter().map(named_version).collect();
                match self.flaw {
                    MirrorFlaw::KeepsMissing => self.objects.extend(objects),
                    _ => self.objects = objects,
                }
                let Some(version) = listed else {
                    // Withdrawn after a minute without the kind.
                    return if self.objects.is_empty() && is_withdrawal_due {
                        Ok(())
                    } else {
                        Err("objects withdrawn without a 404".to_owned())
                    };
                };
                (version, "list")
            }
            WatchOutput::Changed(RawObjectChange::Put(object)) => {
                let (name, version) = named_version(&object);
                self.objects.insert(name, version);
                (version, "put")
            }
            WatchOutput::Changed(RawObjectChange::Delete(object)) => {
                let (name, version) = named_version(&object);
                if self.flaw != MirrorFlaw::KeepsDeleted {
                    self.objects.remove(&name);
                }
                (version, "delete")
            }
            WatchOutput::Absent | WatchOutput::Denied(_) | WatchOutput::Failed(_) => return Ok(()),
        };
        if version < self.version {
            return Err(format!("{reason}: version {version} after {}", self.version));
        }
        self.version = version;
        let expected = server.state_at(version);
        if &self.objects != expected {
            return Err(format!("{reason} at {version}: {:?} instead of {expected:?}", self.objects));
        }
        Ok(())
    }
}

fn named_version(object: &RawObject) -> (String, u64) {
    (object.name.to_string(), object.resource_version.parse().expect("the model counts"))
}

struct Simulation<'c> {
    server: ModelServer,
    machine: WatchMachine,
    mirror: Mirror,
    random: SimulationRandom,
    now_ms: u64,
    next_change_ms: u64,
    requests: u64,
    /// The end of the pause that the last failure demands.
    not_before_ms: u64,
    /// Whether definitions changed and the machine may be notified.
    is_recheck_due: bool,
    coverage: &'c mut Coverage,
}

impl Simulation<'_> {
    fn run(&mut self) -> Result<(), String> {
        while self.now_ms < RUN_END_MS {
            if std::mem::take(&mut self.is_recheck_due) && self.random.one_in(2) {
                self.count("recheck");
                // It ends the pause of an absent or denied kind.
                self.not_before_ms = 0;
                self.feed(WatchInput::Recheck, None)?;
            }
            match self.machine.next(self.now_ms) {
                WatchStep::Pause { until_ms } => self.pause(until_ms),
                WatchStep::Discover => self.discover()?,
                WatchStep::List { version, limit, continue_token } => {
                    self.list(&version, limit, continue_token.as_deref())?;
                }
                WatchStep::Watch { version, resource_version } => {
                    let position = resource_version.parse().map_err(|_| "watch without position")?;
                    self.watch(&version, position)?;
                }
            }
        }
        self.check_end()
    }

    fn check_end(&self) -> Result<(), String> {
        if &self.mirror.objects != self.server.objects() {
            return Err(format!(
                "at the end {:?} instead of {:?}",
                self.mirror.objects,
                self.server.objects()
            ));
        }
        // A failing request is repeated after 0.8 s at the earliest; successful ones take their time.
        if self.requests > RUN_END_MS / 1000 {
            return Err(format!("{} requests in {} s", self.requests, RUN_END_MS / 1000));
        }
        let stale_ms = self.machine.confirmed_ms().map_or(u64::MAX, |at_ms| self.now_ms - at_ms);
        // A bookmark comes each minute, and one is missed at most where a watch ends and the next begins.
        if self.server.is_installed() && stale_ms > 120_000 {
            return Err(format!("not confirmed for {stale_ms} ms at the end"));
        }
        Ok(())
    }

    fn feed(&mut self, input: WatchInput<'_>, listed: Option<u64>) -> Result<(), String> {
        // The machine cannot know that a 404 is a fault.
        let is_withdrawal_due =
            matches!(input, WatchInput::Served(None) | WatchInput::Failed(ApiError::NotFound(_)));
        for output in self.machine.take(input, self.now_ms) {
            let name = match &output {
                WatchOutput::Replaced(_) if listed.is_none() => "output: withdrawn",
                WatchOutput::Replaced(_) => "output: replaced",
                WatchOutput::Changed(RawObjectChange::Put(_)) => "output: put",
                WatchOutput::Changed(RawObjectChange::Delete(_)) => "output: delete",
                WatchOutput::Absent => "output: absent",
                WatchOutput::Denied(_) => "output: denied",
                WatchOutput::Failed(_) => "output: failed",
            };
            self.count(name);
            self.mirror.apply(output, listed, is_withdrawal_due, &self.server)?;
        }
        Ok(())
    }

    fn count(&mut self, name: &'static str) {
        *self.coverage.entry(name).or_default() += 1;
    }

    fn has_faults(&self) -> bool {
        self.now_ms < FAULTS_END_MS
    }

    /// Changes of the API server up to a moment.
    fn advance(&mut self, milliseconds: u64) {
        let until_ms = self.now_ms + milliseconds;
        while self.next_change_ms <= until_ms && self.next_change_ms < CHANGES_END_MS {
            self.now_ms = self.next_change_ms;
            self.change_server();
            let pause_ms = if self.random.one_in(4) { 50 } else { 20_000 };
            self.next_change_ms += 1 + self.random.below(pause_ms);
        }
        self.now_ms = until_ms;
    }

    fn change_server(&mut self) {
        match self.random.below(300) {
            0 | 1 if self.server.is_installed() => {
                self.server.uninstall(self.now_ms);
                self.is_recheck_due = true;
            }
            2 if self.server.is_installed() => {
                let version = if self.random.one_in(2) { "v1" } else { "v1beta1" };
                self.is_recheck_due = self.server.install(version);
            }
            3..30 if !self.server.is_installed() => {
                self.server.install("v1");
                self.is_recheck_due = true;
            }
            30..45 => self.server.compact(&mut self.random),
            _ => self.server.mutate(&mut self.random, self.now_ms),
        }
    }

    fn pause(&mut self, until_ms: u64) {
        // In parts, so that a recheck may come in between.
        let rest_ms = until_ms - self.now_ms;
        let is_whole = self.random.one_in(2);
        self.advance(if is_whole { rest_ms } else { rest_ms.min(1000) });
    }

    /// A failure in place of a response.
    fn draw_failure(&mut self) -> Result<Option<ApiError>, String> {
        if self.now_ms < self.not_before_ms {
            return Err(format!("request {} ms too early after a failure", self.not_before_ms - self.now_ms));
        }
        self.requests += 1;
        let delay_ms = 1 + self.random.below(200);
        self.advance(delay_ms);
        if !self.has_faults() {
            return Ok(None);
        }
        let (name, error) = match self.random.below(100) {
            0..8 => ("fault: unreachable", ApiError::Unreachable(String::new())),
            8..11 => {
                let after_ms = 1000 + self.random.below(40_000);
                ("fault: throttled", ApiError::Throttled { after_ms, message: String::new() })
            }
            11..14 => ("fault: denied", ApiError::Denied(String::new())),
            14..18 => ("fault: refused", ApiError::Refused { code: 500, message: String::new() }),
            18 => ("fault: bad request", ApiError::Refused { code: 400, message: String::new() }),
            19 => ("fault: unauthenticated", ApiError::Unauthenticated(String::new())),
            20 => ("fault: not found", ApiError::NotFound(String::new())),
            _ => return Ok(None),
        };
        self.count(name);
        let pause_ms = match &error {
            ApiError::Denied(_) | ApiError::NotFound(_) => 0,
            ApiError::Throttled { after_ms, .. } => *after_ms,
            _ => 800,
        };
        self.not_before_ms = self.now_ms + pause_ms;
        Ok(Some(error))
    }

    fn discover(&mut self) -> Result<(), String> {
        match self.draw_failure()? {
            // Discovery maps 404 to an absent kind, which a fault must not invent: the API server is asked about the
            // group, not about a path that may be wrong.
            None | Some(ApiError::NotFound(_)) => {
                let version = self.server.installed().map(str::to_owned);
                self.feed(WatchInput::Served(version), None)
            }
            Some(error) => self.feed(WatchInput::Failed(error), None),
        }
    }

    fn list(&mut self, version: &str, limit: Option<u32>, token: Option<&str>) -> Result<(), String> {
        if let Some(error) = self.draw_failure()? {
            return self.feed(WatchInput::Failed(error), None);
        }
        if token.is_some() && self.has_faults() && self.random.one_in(10) {
            self.server.expire_tokens();
        }
        let is_stale = token.is_none() && self.has_faults() && self.random.one_in(8);
        let page = self.server.list(version, limit, token, is_stale.then_some(&mut self.random));
        let page = match page {
            Ok(page) => page,
            Err(error) => {
                self.count(if matches!(error, ApiError::Gone(_)) { "list: gone" } else { "list: not found" });
                return self.feed(WatchInput::Failed(error), None);
            }
        };
        if is_stale {
            self.count("fault: stale list");
        }
        if self.has_faults() && self.random.one_in(40) {
            self.count("fault: cut page");
            let cut = self.random.below(page.len() as u64 - 1) as usize;
            return self.feed(WatchInput::Page(&page.as_bytes()[..cut]), None);
        }
        let listed = ObjectPage::decode(page.as_bytes())?.resource_version.parse().ok();
        self.feed(WatchInput::Page(page.as_bytes()), listed)
    }

    fn watch(&mut self, version: &str, position: u64) -> Result<(), String> {
        if let Some(error) = self.draw_failure()? {
            return self.feed(WatchInput::Failed(error), None);
        }
        if self.server.installed() != Some(version) {
            return self.feed(WatchInput::Failed(ApiError::NotFound(String::new())), None);
        }
        if position < self.server.compacted() {
            self.count("watch: gone");
            // Both forms occur: the status of the response, and a line.
            return if self.random.one_in(2) {
                self.feed(WatchInput::Failed(ApiError::Gone(String::new())), None)
            } else {
                self.feed(WatchInput::Line(GONE_LINE), None)
            };
        }
        // A lagging API server shows changes late.
        let lag_ms = if self.has_faults() && self.random.one_in(3) { self.random.below(30_000) } else { 0 };
        self.follow(version, position, lag_ms)
    }

    /// An open watch, until it ends.
    fn follow(&mut self, version: &str, mut cursor: u64, lag_ms: u64) -> Result<(), String> {
        let opened_ms = self.now_ms;
        let mut next_bookmark_ms = self.now_ms + 60_000;
        while self.now_ms < RUN_END_MS {
            if self.has_faults() && self.disturb_watch(cursor)? {
                return Ok(());
            }
            if std::mem::take(&mut self.is_recheck_due) && self.random.one_in(2) {
                self.count("recheck");
                // It ends the pause of an absent or denied kind.
                self.not_before_ms = 0;
                self.feed(WatchInput::Recheck, None)?;
            }
            if !self.machine.is_watching() {
                return Ok(());
            }
            if self.now_ms - opened_ms >= 290_000 || self.server.installed() != Some(version) {
                return self.feed(WatchInput::Ended, None);
            }
            let seen_ms = self.now_ms.saturating_sub(lag_ms);
            if let Some((event_version, line)) = self.server.next_line(cursor, seen_ms) {
                cursor = event_version;
                self.feed(WatchInput::Line(line.as_bytes()), None)?;
                let delay_ms = self.random.below(5);
                self.advance(delay_ms);
            } else if self.now_ms >= next_bookmark_ms {
                next_bookmark_ms += 60_000;
                let line = self.server.bookmark(cursor);
                self.feed(WatchInput::Line(line.as_bytes()), None)?;
            } else {
                let step_ms = 1 + self.random.below(3000);
                self.advance(step_ms);
            }
        }
        Ok(())
    }

    /// Whether a fault ended the watch.
    fn disturb_watch(&mut self, cursor: u64) -> Result<bool, String> {
        let (name, input) = match self.random.below(400) {
            0..4 => ("fault: dropped", WatchInput::Failed(ApiError::Unreachable(String::new()))),
            4..6 => ("fault: ended", WatchInput::Ended),
            6 => {
                self.count("fault: silent");
                self.advance(SILENCE_MS);
                self.feed(WatchInput::Silent, None)?;
                return Ok(true);
            }
            7 => ("fault: 410", WatchInput::Line(GONE_LINE)),
            8 => ("fault: cut line", WatchInput::Line(br#"{"type":"ADDED","object":{"metadata":{"na"#)),
            9 => {
                let line = br#"{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd"}}"#;
                ("fault: 500", WatchInput::Line(line))
            }
            10..25 => {
                if let Some(line) = self.server.old_line(cursor, &mut self.random) {
                    self.count("fault: duplicate");
                    self.feed(WatchInput::Line(line.as_bytes()), None)?;
                }
                return Ok(false);
            }
            _ => return Ok(false),
        };
        self.count(name);
        self.feed(input, None)?;
        Ok(true)
    }
}

const GONE_LINE: &[u8] =
    br#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old resource version"}}"#;

fn run(seed: u64, flaw: MirrorFlaw, coverage: &mut Coverage) -> Result<(), String> {
    let mut random = SimulationRandom::new(seed);
    let server = ModelServer::new(&mut random);
    let kind = WatchedKind::new("g", "things", "Thing", &["v1", "v1beta1"]);
    let mut simulation = Simulation {
        server,
        machine: WatchMachine::new(kind, seed),
        mirror: Mirror { objects: BTreeMap::new(), version: 0, flaw },
        random,
        now_ms: 0,
        next_change_ms: 0,
        requests: 0,
        not_before_ms: 0,
        is_recheck_due: false,
        coverage,
    };
    simulation.run().map_err(|broken| format!("seed {seed} at {} ms: {broken}", simulation.now_ms))
}

fn seeds(usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var("SIM_SEEDS") else { return usual };
    let (from, to) = text.split_once("..").expect("SIM_SEEDS is from..to");
    from.trim().parse().expect("SIM_SEEDS is from..to")..to.trim().parse().expect("SIM_SEEDS is from..to")
}

#[test]
fn simulation_keeps_the_mirror_equal_to_the_server() {
    let mut coverage = Coverage::new();
    let usual = 0..2000;
    for seed in seeds(usual.clone()) {
        if let Err(broken) = run(seed, MirrorFlaw::Nothing, &mut coverage) {
            panic!("{broken}\nSIM_SEEDS={seed}..{}", seed + 1);
        }
    }
    if seeds(usual.clone()) == usual {
        // Each fault and each output occurs, or the run shows less than it seems to.
        let names = [
            "fault: unreachable",
            "fault: throttled",
            "fault: denied",
            "fault: refused",
            "fault: bad request",
            "fault: unauthenticated",
            "fault: not found",
            "fault: stale list",
            "fault: cut page",
            "fault: dropped",
            "fault: ended",
            "fault: silent",
            "fault: 410",
            "fault: cut line",
            "fault: 500",
            "fault: duplicate",
            "list: gone",
            "list: not found",
            "watch: gone",
            "recheck",
            "output: withdrawn",
            "output: replaced",
            "output: put",
            "output: delete",
            "output: absent",
            "output: denied",
            "output: failed",
        ];
        for name in names {
            assert!(coverage.get(name).is_some_and(|&count| count > 100), "{name}: {coverage:?}");
        }
    }
}

#[test]
fn simulation_finds_a_mirror_with_a_flaw() {
    for flaw in [MirrorFlaw::KeepsMissing, MirrorFlaw::KeepsDeleted] {
        let found = (0..20).filter(|&seed| run(seed, flaw, &mut Coverage::new()).is_err()).count();
        assert!(found > 10, "{flaw:?}: {found} of 20 seeds");
    }
}
