//! A whole run: facts, ceilings, then one group of points after the other, by required gateways.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::ceilings;
use super::evidence;
use super::group::{GatewayGroup, together};
use super::pinning;
use super::progress::{RunProgress, percentile, rfc3339};
use super::round::{self, RoundContext, RoundSubject};
use super::run_targets::RunTarget;
use super::upstreams::LabUpstreams;
use crate::doctor::{self, MachineFacts};
use crate::record::{
    CpuPinning, FORMAT, FlameProfile, MeasuredCeiling, RoundRecord, RunRecord, RunScale, ScenarioFacts,
    SkippedTarget, TrapRecord,
};
use crate::scenario::{CaseSettings, ClientSettings, ParameterPoint, Scenario};
use crate::targets::LabCertificate;

/// Output of progress messages.
pub(super) type Say<'a> = &'a dyn Fn(&str);

/// Inputs common to all runs of one command.
pub(super) struct LabContext<'a> {
    pub(super) bench: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) certificate: LabCertificate,
    pub(super) cpus: Vec<usize>,
    pub(super) facts: MachineFacts,
    pub(super) scale: RunScale,
    pub(super) seed: u64,
    pub(super) command: String,
    pub(super) upstream_port: Option<u16>,
    pub(super) rate: Option<f64>,
    pub(super) flame: FlamePlan,
    pub(super) print: Say<'a>,
}

/// Flame graphs of a run.
pub(super) enum FlamePlan {
    /// None are requested.
    Off,
    Sample,
    /// Requested, but this machine cannot sample.
    Impossible(String),
}

/// Payloads of report R1: bytes of request and response.
const LINK_PAYLOAD: (usize, usize) = (81, 181);
const LINK_CONNECTIONS: usize = 16;
const CEILING_SECONDS: f64 = 1.0;

impl LabContext<'_> {
    /// Runs a scenario on the given targets.
    pub(super) fn run(
        &self,
        scenario: &Scenario,
        entrants: &[RunTarget],
        skipped: &[SkippedTarget],
    ) -> Result<RunRecord> {
        let points = scenario.points(pinning::workers_max(self.cpus.len()))?;
        let mut run = self.about(scenario, &points, skipped);
        // Before the gateways start, which would take processor time.
        run.ceilings = self.ceilings(&points).context("the ceilings")?;
        for ceiling in &run.ceilings {
            (self.print)(&format!(
                "ceiling of the {}: {:.0} round trips per second on {} connections",
                ceiling.name, ceiling.per_second, ceiling.connections
            ));
        }
        let mut progress = RunProgress::new(&points, entrants, scenario.rounds, self.seed);
        for members in together(&points) {
            // One group at a time, so that no other gateway takes processor time.
            GatewayGroup::start(self, scenario, &points, &members, entrants, &mut progress)?
                .run(&mut progress)?;
        }
        run.took_ms = progress.begun.elapsed().as_millis() as u64;
        (run.cases, run.targets, run.flames) = (progress.cases, progress.targets, progress.flames);
        if let FlamePlan::Impossible(reason) = &self.flame {
            run.flames = vec![FlameProfile {
                case: "all cases".to_owned(),
                target: "all gateways".to_owned(),
                missing: Some(reason.clone()),
                ..FlameProfile::default()
            }];
        }
        // At the end, because evidence may need all rounds. Collected first, since `seen` reads the whole record.
        let seen: Vec<Option<String>> =
            scenario.traps.iter().map(|trap| trap.see.and_then(|kind| evidence::seen(kind, &run))).collect();
        for (trap, seen) in run.scenario.traps.iter_mut().zip(seen) {
            trap.seen = seen;
        }
        Ok(run)
    }

    /// Creates the record with all facts known before the first round.
    fn about(&self, scenario: &Scenario, points: &[ParameterPoint], skipped: &[SkippedTarget]) -> RunRecord {
        let settings = || points.iter().map(|point| &point.settings);
        let connections = settings().map(|settings| settings.clients.connections as u64).max().unwrap_or(1);
        let workers = settings().map(|settings| settings.gateway.workers).max().unwrap_or(1);
        let needs = doctor::MachineNeeds {
            connections,
            short_connections: settings().any(CaseSettings::short_connections),
        };
        let traps = scenario.traps.iter().map(|trap| TrapRecord {
            name: trap.name.clone(),
            what: trap.what.clone(),
            answer: trap.answer.clone(),
            seen: None,
        });
        RunRecord {
            format: FORMAT,
            started: now(),
            took_ms: 0,
            command: self.command.clone(),
            seed: self.seed,
            scale: self.scale,
            lab_version: env!("CARGO_PKG_VERSION").to_owned(),
            machine: self.facts.machine(pinning::split(&self.cpus, workers)),
            doctor: doctor::examine(&self.facts, needs),
            scenario: ScenarioFacts {
                name: scenario.name.clone(),
                title: scenario.title.clone(),
                report: scenario.report.clone(),
                about: scenario.about.clone(),
                traps: traps.collect(),
                views: scenario.views.clone(),
                seconds: scenario.seconds,
                rounds: scenario.rounds,
                fail_if: scenario.fail_if.clone(),
                source: scenario.source.clone(),
            },
            ceilings: Vec::new(),
            targets: Vec::new(),
            skipped: skipped.to_vec(),
            cases: Vec::new(),
            flames: Vec::new(),
        }
    }

    /// Measures the link with the payloads of R1, and the upstream alone with the connections of the largest
    /// point.
    fn ceilings(&self, points: &[ParameterPoint]) -> Result<Vec<MeasuredCeiling>> {
        let pinning = pinning::split(&self.cpus, 1);
        let (request_bytes, answered) = LINK_PAYLOAD;
        let duration = Duration::from_secs_f64(CEILING_SECONDS);
        let link = ceilings::link(LINK_CONNECTIONS, request_bytes, answered, duration, &pinning)?;
        let with_upstream =
            points.iter().map(|point| &point.settings).filter(|settings| settings.has_upstream());
        let Some(busiest) = with_upstream.max_by_key(|settings| settings.clients.connections) else {
            // No request reaches an upstream, so its rate bounds nothing.
            return Ok(vec![link]);
        };
        let connections = busiest.clients.connections.min(256);
        let clients =
            ClientSettings { connections, path: busiest.clients.path.clone(), ..ClientSettings::default() };
        let settings = CaseSettings { clients, ..CaseSettings::default() };
        let mut upstreams = self.upstreams(1, &pinning)?;
        let round = self.direct(&settings, CEILING_SECONDS, &mut upstreams, &pinning, Instant::now())?;
        // An average per response, for comparison with the payloads of the link.
        let responses = round.summary.totals.responses.max(1);
        let alone = MeasuredCeiling {
            name: "upstream".to_owned(),
            connections,
            request_bytes: round.summary.transfer.bytes_sent / responses,
            response_bytes: round.summary.transfer.bytes_received / responses,
            per_second: round.summary.responses_per_second(),
            p50_ns: percentile(&round.summary, 50.0),
        };
        Ok(vec![link, alone])
    }

    /// Starts `count` endpoints.
    pub(super) fn upstreams(&self, count: usize, pinning: &CpuPinning) -> Result<LabUpstreams> {
        LabUpstreams::start(&self.bench, &self.folder, &pinning.upstream, count, self.upstream_port)
    }

    /// Loads the upstream directly.
    pub(super) fn direct(
        &self,
        settings: &CaseSettings,
        seconds: f64,
        upstreams: &mut LabUpstreams,
        pinning: &CpuPinning,
        run_begun: Instant,
    ) -> Result<RoundRecord> {
        let base = format!("http://127.0.0.1:{}", upstreams.port());
        let subject = RoundSubject {
            base: &base,
            server_name: None,
            gateway: None,
            pids: Vec::new(),
            is_gateway: false,
            own_upstream: true,
        };
        let bench = RoundContext { program: &self.bench, folder: &self.folder, pinning, run_begun };
        round::run(settings, seconds, &subject, upstreams, &bench)
    }
}

fn now() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    rfc3339(since.as_secs())
}

/// Creates a unique working directory for a run.
pub(super) fn work_folder(base: &Path) -> Result<PathBuf> {
    let folder = base.join(format!("yumen-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    Ok(folder)
}
