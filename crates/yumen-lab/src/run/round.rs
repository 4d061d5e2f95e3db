//! One load on one target, with all measurements.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use yumen_load::LoadSummary;

use super::changes;
use super::gateway::StartedGateway;
use super::interrupt;
use super::load::{self, LoadInput, RunningLoad};
use super::upstreams::LabUpstreams;
use super::usage::{
    self, BottleneckInput, GatewayProcesses, OfferedLoad, ProcessRoots, WatchedPart, WatchedParts,
};
use crate::record::{ChangeMark, CpuPinning, RoundConnections, RoundRecord, RoundUsage};
use crate::scenario::{CaseLoad, CaseSettings};

/// Target of a round.
pub(super) struct RoundSubject<'a> {
    /// Scheme, host and port.
    pub(super) base: &'a str,
    /// Server name for TLS, if not the host.
    pub(super) server_name: Option<&'a str>,
    /// Gateway started by the lab; `None` for the baseline and for URLs.
    pub(super) gateway: Option<&'a StartedGateway>,
    /// First processes of the gateway; empty if unknown.
    pub(super) pids: Vec<u32>,
    /// Whether the target is a gateway.
    pub(super) is_gateway: bool,
    /// Whether the target forwards to the lab's upstream.
    pub(super) own_upstream: bool,
}

/// Environment of a round.
pub(super) struct RoundContext<'a> {
    pub(super) program: &'a Path,
    pub(super) folder: &'a Path,
    pub(super) pinning: &'a CpuPinning,
    pub(super) run_begun: Instant,
}

/// Runs the round. The caller sets number and position.
pub(super) fn run(
    settings: &CaseSettings,
    seconds: f64,
    subject: &RoundSubject<'_>,
    upstreams: &mut LabUpstreams,
    bench: &RoundContext<'_>,
) -> Result<RoundRecord> {
    let parts = parts(settings, subject, upstreams, bench.pinning);
    let aim = LoadInput {
        base: subject.base,
        server_name: subject.server_name,
        seconds,
        cpus: parts.generator.cpus,
        pids: &subject.pids,
    };
    let args = load::arguments(settings, &aim);
    let counted = subject.own_upstream.then(|| upstreams.accepted()).flatten();
    // After the upstream was asked, because the connections of the lab would count.
    let opened = passive_opens();
    let begun = Instant::now();
    let mut running = RunningLoad::start(bench.program, bench.folder, &bench.pinning.generator, &args)?;
    parts.generator.roots.add(running.root());
    let ended = AtomicBool::new(false);
    let limit = load::expected(settings, seconds);
    let (summary, (mut usage, others), changes) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| usage::watch(&parts, interval(seconds), &ended));
        let changing = settings.changes.as_ref().zip(subject.gateway).map(|(changes, gateway)| {
            let (upstreams, ended) = (&mut *upstreams, &ended);
            scope.spawn(move || changes::apply(changes, gateway, upstreams, begun, ended))
        });
        let summary = running.finish(limit, interrupt::interrupted);
        // Also after a failed load, because the threads of the scope end by it.
        ended.store(true, Ordering::Release);
        // A failed observation costs the usage, not the round.
        let usage = watching.join().unwrap_or_default();
        let changes: Vec<ChangeMark> = changing.and_then(|changing| changing.join().ok()).unwrap_or_default();
        summary.map(|summary| (summary, usage, changes))
    })?;
    // Before the bottleneck, which judges the generator by its own count.
    settle(&mut usage, &summary);
    // Before the upstream is asked, because that connection would count too.
    let opened = opened.zip(passive_opens()).map(|(before, after)| after.saturating_sub(before));
    let counted = counted.zip(upstreams.accepted()).map(|(before, after)| after.saturating_sub(before));
    let offered = BottleneckInput {
        elapsed_ns: summary.elapsed_ns,
        load: offered_load(settings, &summary),
        gateway: match (subject.is_gateway, subject.pids.is_empty()) {
            (false, _) => GatewayProcesses::Absent,
            (true, true) => GatewayProcesses::Unknown,
            (true, false) => GatewayProcesses::Known,
        },
        shared: bench.pinning.upstream == bench.pinning.generator,
        others,
    };
    Ok(RoundRecord {
        number: 0,
        position: 0,
        at_ms: (begun - bench.run_begun).as_millis() as u64,
        bottleneck: usage::bottleneck(&usage, offered),
        connections: Some(connections(&summary, opened, counted, subject.is_gateway)),
        summary,
        usage,
        changes,
    })
}

fn parts(
    settings: &CaseSettings,
    subject: &RoundSubject<'_>,
    upstreams: &LabUpstreams,
    pinning: &CpuPinning,
) -> WatchedParts {
    let cpus = |list: &[usize]| {
        if list.is_empty() { crate::doctor::facts::allowed_cpus().len() } else { list.len() }
    };
    // A gateway with fewer workers than processors is at its limit when its workers are.
    let gateway_cpus = cpus(&pinning.gateway).min(settings.gateway.workers);
    let upstream = if subject.own_upstream { upstreams.roots() } else { ProcessRoots::default() };
    WatchedParts {
        gateway: WatchedPart { roots: ProcessRoots::of(&subject.pids), cpus: gateway_cpus },
        upstream: WatchedPart { roots: upstream, cpus: cpus(&pinning.upstream) },
        generator: WatchedPart { roots: ProcessRoots::default(), cpus: cpus(&pinning.generator) },
        processors: processors(),
    }
}

/// Number of processors of the machine, regardless of affinity.
fn processors() -> usize {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    // The line `cpu` is the sum of the others.
    text.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count()
}

/// Replaces external measurements by the generator's own, and computes values per request.
fn settle(usage: &mut RoundUsage, summary: &LoadSummary) {
    usage.generator.cpu_ns = summary.generator.cost.cpu_ns();
    for part in [&mut usage.gateway, &mut usage.upstream, &mut usage.generator] {
        if summary.totals.responses > 0 {
            part.cpu_ns_per_request = part.cpu_ns as f64 / summary.totals.responses as f64;
        }
    }
}

fn offered_load(settings: &CaseSettings, summary: &LoadSummary) -> OfferedLoad {
    let offered = match settings.load {
        CaseLoad::Open(rate) => rate.per_second().unwrap_or(0.0) * summary.elapsed_ns as f64 / 1e9,
        CaseLoad::Ramp(_) => summary.ramp.iter().map(|step| step.calls).sum::<u64>() as f64,
        CaseLoad::Closed => return OfferedLoad::Closed,
        CaseLoad::Idle => return OfferedLoad::Held,
    };
    OfferedLoad::Fixed { answered: summary.totals.responses as f64 / offered.max(1.0) }
}

/// Counts connections from the kernel's passive opens, which include those accepted by the upstream.
fn connections(
    summary: &LoadSummary,
    opened: Option<u64>,
    upstream: Option<u64>,
    is_gateway: bool,
) -> RoundConnections {
    // The kernel counts every accepted connection of the machine, including those of the upstream.
    let door = match (opened, upstream) {
        (Some(opened), Some(upstream)) if is_gateway => Some(opened.saturating_sub(upstream)),
        (Some(opened), _) if !is_gateway => Some(opened),
        _ => None,
    };
    RoundConnections {
        client: summary.connections.opened,
        door,
        upstream: upstream.filter(|_| is_gateway),
        requests: summary.totals.responses,
    }
}

/// Passive opens of this machine since boot.
fn passive_opens() -> Option<u64> {
    passive_opens_in(&std::fs::read_to_string("/proc/net/snmp").ok()?)
}

fn passive_opens_in(text: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut pairs = names.split(' ').zip(values.split(' '));
    pairs.find(|(name, _)| *name == "PassiveOpens").and_then(|(_, value)| value.parse().ok())
}

/// Sampling interval: some tens of samples per round, none too short to be meaningful.
fn interval(seconds: f64) -> Duration {
    Duration::from_secs_f64((seconds / 30.0).clamp(0.1, 1.0))
}

#[cfg(test)]
mod tests {
    use yumen_load::RequestTotals;

    use super::*;

    #[test]
    fn accepted_connections_are_read_from_the_kernels_table() {
        let text =
            "Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm ActiveOpens PassiveOpens InSegs\nTcp: 1 20 33 4\n";
        assert_eq!(passive_opens_in(text), Some(33));
        assert_eq!(passive_opens_in("Tcp: A\n"), None);
    }

    #[test]
    fn connections_at_the_door_are_those_the_upstream_did_not_get() {
        let summary = LoadSummary {
            totals: RequestTotals { responses: 50, ..RequestTotals::default() },
            ..LoadSummary::default()
        };
        assert_eq!(connections(&summary, Some(100), Some(30), true).door, Some(70));
        assert_eq!(connections(&summary, Some(100), None, true).door, None);
        let direct = connections(&summary, Some(100), Some(99), false);
        assert_eq!((direct.door, direct.upstream, direct.requests), (Some(100), None, 50));
    }
}
