//! Points with the same gateways: starts all gateways once, runs the rounds in random order with one target
//! under load at a time, then stops all.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};

use super::config_check;
use super::flame::{self, UnwindMethod};
use super::gateway::{GatewaySite, StartedGateway};
use super::interrupt;
use super::lab::{FlamePlan, LabContext};
use super::pinning;
use super::process::descendants;
use super::progress::RunProgress;
use super::round::{self, RoundContext, RoundSubject};
use super::run_targets::{RunTarget, RunTargetKind};
use super::upstreams::LabUpstreams;
use crate::record::{CpuPinning, FlameProfile, RoundRecord};
use crate::scenario::{CaseLoad, CaseSettings, GatewayShape, OpenRate, ParameterPoint, Scenario};

/// Duration of the closed loop that measures a target's maximum rate.
const PROBE_SECONDS: f64 = 1.5;
/// Duration of the sampling for a flame graph.
const FLAME_SECONDS: f64 = 4.0;
/// Time between the start of the load and that of the sampling.
const FLAME_DELAY: Duration = Duration::from_millis(500);

/// Started gateways and their points.
pub(super) struct GatewayGroup<'a> {
    lab: &'a LabContext<'a>,
    scenario: &'a Scenario,
    points: &'a [ParameterPoint],
    entrants: &'a [RunTarget],
    /// Settings of the group's points, by index in `points`.
    settings: BTreeMap<usize, CaseSettings>,
    pinning: CpuPinning,
    upstreams: LabUpstreams,
    /// Started gateways, by index in `entrants`.
    gateways: BTreeMap<usize, StartedGateway>,
}

/// Groups the indexes of points with the same shape, in the order of their first point.
pub(super) fn together(points: &[ParameterPoint]) -> Vec<Vec<usize>> {
    let mut groups: Vec<(GatewayShape, Vec<usize>)> = Vec::new();
    for (target_index, point) in points.iter().enumerate() {
        let shape = point.settings.shape();
        // A linear search keeps the order of the first points; a scenario has few shapes.
        match groups.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, members)) => members.push(target_index),
            None => groups.push((shape, vec![target_index])),
        }
    }
    groups.into_iter().map(|(_, members)| members).collect()
}

impl<'a> GatewayGroup<'a> {
    /// Starts the gateways. A gateway that cannot be started is noted as missing.
    pub(super) fn start(
        lab: &'a LabContext<'a>,
        scenario: &'a Scenario,
        points: &'a [ParameterPoint],
        members: &[usize],
        entrants: &'a [RunTarget],
        progress: &mut RunProgress,
    ) -> Result<GatewayGroup<'a>> {
        let settings: BTreeMap<usize, CaseSettings> = members
            .iter()
            .map(|target_index| (*target_index, points[*target_index].settings.clone()))
            .collect();
        let shape = points[members[0]].settings.shape();
        let pinning = pinning::split(&lab.cpus, shape.gateway.workers);
        // Before the gateways, which get their addresses.
        let upstreams = lab.upstreams(shape.endpoints, &pinning)?;
        let gateways = BTreeMap::new();
        let mut group =
            GatewayGroup { lab, scenario, points, entrants, settings, pinning, upstreams, gateways };
        for (target_index, entrant) in entrants.iter().enumerate() {
            interrupt::check()?;
            match group.start_one(entrant, &shape, members[0]) {
                Ok(None) => {}
                Ok(Some(gateway)) => {
                    progress.describe(target_index, &gateway);
                    group.gateways.insert(target_index, gateway);
                }
                // One broken gateway must not cost the measurements of the others.
                Err(error) => {
                    let reason = format!("{error:#}");
                    (lab.print)(&format!(
                        "{} is left out of {}: {reason}",
                        entrant.name, points[members[0]].label
                    ));
                    members.iter().for_each(|point| progress.miss(*point, target_index, &reason));
                }
            }
        }
        Ok(group)
    }

    /// Starts one gateway; `None` if there is nothing to start.
    fn start_one(
        &self,
        entrant: &RunTarget,
        shape: &GatewayShape,
        first: usize,
    ) -> Result<Option<StartedGateway>> {
        let RunTargetKind::Adapter { adapter, program, version } = &entrant.kind else { return Ok(None) };
        config_check::check_version(*adapter, version.as_deref())?;
        let path = self.points[first].settings.paths().swap_remove(0);
        let site = GatewaySite {
            folder: self.lab.folder.join(format!("{}-{}-{first}", self.scenario.name, entrant.name)),
            program: program.as_path(),
            cpus: &self.pinning.gateway,
            endpoints: self.upstreams.addresses(shape.endpoints),
            certificate: &self.lab.certificate,
            connections_max: self
                .settings
                .values()
                .map(|settings| settings.clients.connections)
                .max()
                .unwrap_or(1),
        };
        let gateway = StartedGateway::start(*adapter, shape, site)?;
        // A gateway that answers errors or another body must not be measured.
        gateway.verify(&path, &self.upstreams.body(&path)?)?;
        Ok(Some(gateway))
    }

    /// Runs all rounds.
    pub(super) fn run(mut self, progress: &mut RunProgress) -> Result<()> {
        // Before the rounds, because a rate depends on the slowest target.
        self.settle_rates(progress)?;
        let mut turns = self.turns();
        progress.planned(&turns, self.scenario.rounds);
        // Round 0 is the warm-up.
        for number in 0..=self.scenario.rounds {
            // A new order per round keeps drift of the machine from favouring a target.
            progress.dice.shuffle(&mut turns);
            for (point, target_index) in &turns {
                interrupt::check()?;
                let settings = &self.settings[point];
                let seconds = if number == 0 { self.scenario.warmup_seconds } else { self.scenario.seconds };
                // The warm-up needs no ramp steps, held connections or changes.
                let unmeasured = CaseSettings { changes: None, ..settings.clone() };
                let settings = if number == 0 { unmeasured } else { settings.clone() };
                if number == 0
                    && (seconds == 0.0 || matches!(settings.load, CaseLoad::Ramp(_) | CaseLoad::Idle))
                {
                    continue;
                }
                let outcome = self.turn(&settings, seconds, *target_index, progress);
                progress.note(*point, *target_index, number, outcome, self.lab.print);
            }
        }
        // Last, because sampling disturbs the measured times.
        self.sample_flames(progress)
    }

    /// Pairs of a point and a target that takes part in it.
    fn turns(&self) -> Vec<(usize, usize)> {
        let entrants = |point: usize, settings: &CaseSettings| {
            let takes_part = |(_, entrant): &(usize, &RunTarget)| match &entrant.kind {
                RunTargetKind::Adapter { .. } => true,
                RunTargetKind::Direct => settings.has_direct() && !self.measured_before(point, settings),
                RunTargetKind::Url { url, .. } => {
                    settings.asks_nothing_of_the_gateway()
                        && url.starts_with("https://") == settings.clients.tls.is_some()
                }
            };
            let parts = self.entrants.iter().enumerate().filter(takes_part);
            let target_at = |(target_index, entrant): (usize, &RunTarget)| {
                let started = self.gateways.contains_key(&target_index)
                    || !matches!(entrant.kind, RunTargetKind::Adapter { .. });
                started.then_some((point, target_index))
            };
            parts.filter_map(target_at).collect::<Vec<_>>()
        };
        self.settings.iter().flat_map(|(point, settings)| entrants(*point, settings)).collect()
    }

    /// The baseline is measured once for all points with the same load.
    fn measured_before(&self, point: usize, settings: &CaseSettings) -> bool {
        let load = settings.load_only();
        self.points[..point].iter().any(|earlier| earlier.settings.load_only() == load)
    }

    fn turn(
        &mut self,
        settings: &CaseSettings,
        seconds: f64,
        target_index: usize,
        progress: &RunProgress,
    ) -> Result<RoundRecord> {
        let (lab, pinning, begun) = (self.lab, &self.pinning, progress.begun);
        let gateway = self.gateways.get(&target_index);
        let tls = settings.clients.tls.is_some();
        let (base, pids) = match (&self.entrants[target_index].kind, gateway) {
            (RunTargetKind::Url { url, pids }, _) => (url.clone(), pids.clone()),
            (RunTargetKind::Adapter { .. }, Some(gateway)) => (gateway.base(tls), vec![gateway.root()]),
            _ => return lab.direct(settings, seconds, &mut self.upstreams, pinning, begun),
        };
        let subject = RoundSubject {
            base: &base,
            server_name: (tls && gateway.is_some()).then_some("localhost"),
            gateway,
            pids,
            is_gateway: true,
            own_upstream: gateway.is_some(),
        };
        let bench = RoundContext { program: &lab.bench, folder: &lab.folder, pinning, run_begun: begun };
        round::run(settings, seconds, &subject, &mut self.upstreams, &bench)
    }

    /// Converts `rate_share` to a rate from the slowest target. All points get the same rate, to be
    /// comparable.
    fn settle_rates(&mut self, progress: &mut RunProgress) -> Result<()> {
        let rate_of = |settings: &CaseSettings| match settings.load {
            CaseLoad::Open(rate) => Some(rate),
            _ => None,
        };
        let open: Vec<(usize, OpenRate)> =
            self.settings.iter().filter_map(|(point, settings)| Some((*point, rate_of(settings)?))).collect();
        for (point, open_rate) in open {
            let rate = match (self.lab.rate, open_rate, progress.rate()) {
                (Some(rate), ..) | (_, OpenRate::PerSecond(rate), _) | (.., Some(rate)) => Some(rate),
                (None, OpenRate::ShareOfSlowest(share), None) => self.probe(point, share, progress)?,
            };
            // Without a gateway there is no maximum to take a share of.
            let Some(rate) = rate else { continue };
            if let Some(settings) = self.settings.get_mut(&point) {
                settings.load = CaseLoad::Open(OpenRate::PerSecond(rate));
            }
            // The record shows the rate that was used, not the share that was asked for.
            progress.cases[point].parameters.insert("rate".to_owned(), rate.into());
        }
        Ok(())
    }

    /// A share of the slowest target's closed loop rate; `None` without a gateway.
    fn probe(&mut self, point: usize, share: f64, progress: &RunProgress) -> Result<Option<f64>> {
        // Changes of endpoints would disturb the maximum.
        let probe = CaseSettings { load: CaseLoad::Closed, changes: None, ..self.settings[&point].clone() };
        let mut slowest: Option<(f64, usize)> = None;
        for target_index in self.gateways.keys().copied().collect::<Vec<_>>() {
            let rate =
                self.turn(&probe, PROBE_SECONDS, target_index, progress)?.summary.responses_per_second();
            // Every gateway must be able to sustain the rate, so the slowest one determines it.
            if slowest.is_none_or(|(known, _)| rate < known) {
                slowest = Some((rate, target_index));
            }
        }
        let Some((capacity, target_index)) = slowest else { return Ok(None) };
        let rate = round_down(capacity * share);
        let name = &self.entrants[target_index].name;
        (self.lab.print)(&format!(
            "the slowest, {name}, answers {capacity:.0} per second: the rate is {rate:.0}"
        ));
        Ok(Some(rate))
    }

    /// Samples the processor time of each gateway under the load of the point with the most connections.
    fn sample_flames(&mut self, progress: &mut RunProgress) -> Result<()> {
        let FlamePlan::Sample = &self.lab.flame else { return Ok(()) };
        // Held connections cost no processor time.
        let loaded = self.settings.iter().filter(|(_, settings)| settings.load != CaseLoad::Idle);
        let Some((point, settings)) = loaded.max_by_key(|(_, settings)| settings.clients.connections) else {
            return Ok(());
        };
        let (point, settings) = (*point, CaseSettings { changes: None, ..settings.clone() });
        for target_index in self.gateways.keys().copied().collect::<Vec<_>>() {
            interrupt::check()?;
            let first = self.sample_flame(&settings, target_index, UnwindMethod::Tables, progress);
            let profile = first.and_then(|first| {
                let other = UnwindMethod::FramePointers;
                flame::better(first, || self.sample_flame(&settings, target_index, other, progress))
            });
            let name = self.entrants[target_index].name.clone();
            let profile = profile.unwrap_or_else(|error| {
                // The measurements are complete; a failed `perf` must not discard them.
                let missing = Some(format!("{error:#}"));
                FlameProfile { missing, ..FlameProfile::default() }
            });
            let case = self.points[point].label.clone();
            (self.lab.print)(&match &profile.missing {
                None => format!(
                    "flame graph of {name}, {case}: {} samples by {}, {:.1} % unknown",
                    profile.samples,
                    profile.method,
                    profile.unknown * 100.0
                ),
                Some(reason) => format!("no flame graph of {name}: {reason}"),
            });
            progress.flames.push(FlameProfile { case, target: name, ..profile });
        }
        Ok(())
    }

    fn sample_flame(
        &mut self,
        settings: &CaseSettings,
        target_index: usize,
        method: UnwindMethod,
        progress: &RunProgress,
    ) -> Result<FlameProfile> {
        let Some(gateway) = self.gateways.get(&target_index) else { bail!("the gateway is not running") };
        // Before the load, because the turn below borrows the group mutably.
        let pids = descendants(gateway.root());
        let folder = &self.lab.folder;
        std::thread::scope(|scope| {
            let sampling = scope.spawn(move || {
                // The connections of the load come first.
                std::thread::sleep(FLAME_DELAY);
                flame::sample(&pids, FLAME_SECONDS, method, folder)
            });
            // Longer than the sampling, so that the load covers all samples.
            let loaded =
                self.turn(settings, FLAME_SECONDS + 2.0 * FLAME_DELAY.as_secs_f64(), target_index, progress);
            let sampled =
                sampling.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the sampling thread panicked")));
            loaded.and(sampled)
        })
    }
}

/// Rounds down to two significant digits.
fn round_down(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.max(1.0).log10().floor() - 1.0).max(1.0);
    ((rate / unit).floor() * unit).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{ClientSettings, GatewaySettings};

    #[test]
    fn rates_are_rounded_down_to_two_digits() {
        for (rate, rounded) in [(12_345.0, 12_000.0), (999.0, 990.0), (54.3, 54.0), (7.9, 7.0), (0.2, 1.0)] {
            assert_eq!(round_down(rate), rounded);
        }
    }

    #[test]
    fn points_of_one_shape_are_one_group() {
        let point = |connections: usize, routes: usize| ParameterPoint {
            id: String::new(),
            label: String::new(),
            parameters: Default::default(),
            settings: CaseSettings {
                clients: ClientSettings { connections, ..ClientSettings::default() },
                gateway: GatewaySettings { routes, ..GatewaySettings::default() },
                ..CaseSettings::default()
            },
        };
        assert_eq!(together(&[point(1, 0), point(1, 5), point(2, 0)]), [vec![0, 2], vec![1]]);
    }
}
