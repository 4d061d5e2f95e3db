//! Processor time and memory of gateway, upstream and generator during a round, and the bottleneck.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::process;
use crate::doctor::facts::CpuTimes;
use crate::record::{BottleneckPart, PartUsage, RoundBottleneck, RoundUsage, UsageSample};

/// First processes of a part. Processes may be added during the observation.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessRoots(Arc<Mutex<Vec<u32>>>);

impl ProcessRoots {
    pub(super) fn of(pids: &[u32]) -> ProcessRoots {
        ProcessRoots(Arc::new(Mutex::new(pids.to_vec())))
    }

    pub(super) fn add(&self, pid: u32) {
        // A list of ids is whole after every statement, so a poisoned lock is usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(pid);
    }

    pub(super) fn list(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Processes of a part and its number of processors.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchedPart {
    pub(super) roots: ProcessRoots,
    pub(super) cpus: usize,
}

/// The three parts.
#[derive(Clone, Debug, Default)]
pub(super) struct WatchedParts {
    pub(super) gateway: WatchedPart,
    pub(super) upstream: WatchedPart,
    pub(super) generator: WatchedPart,
    /// Processors of the machine.
    pub(super) processors: usize,
}

/// Observes the parts until `ended` is set. Returns the usage and the share of processors used by other
/// programs.
pub(super) fn watch(parts: &WatchedParts, interval: Duration, ended: &AtomicBool) -> (RoundUsage, f64) {
    let begun = Instant::now();
    let times = CpuTimes::now();
    let mut meters =
        [&parts.gateway, &parts.upstream, &parts.generator].map(|watched| CpuMeter::new(watched.clone()));
    let mut next = begun + interval;
    loop {
        // `ended` is read before the sample, so that one last sample covers the end.
        let over = ended.load(Ordering::Acquire);
        let now = Instant::now();
        if over || now >= next {
            // One moment for all parts, so that their curves can be compared. The load ends within the last
            // interval: its share of a processor would mix load and idleness.
            let is_whole = now >= next;
            meters.iter_mut().for_each(|meter| meter.look(now - begun, is_whole));
            next = now + interval;
        }
        if over {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    // Both or neither: without `/proc/stat` there is no share of others.
    let times = times.zip(CpuTimes::now());
    let stolen = times.map_or(0.0, |(before, after)| after.stolen_since(before));
    let busy = times.map_or(0.0, |(before, after)| after.busy_since(before));
    let [gateway, upstream, generator] = meters.map(CpuMeter::part);
    let own_ns = (gateway.cpu_ns + upstream.cpu_ns + generator.cpu_ns) as f64;
    let own = own_ns / (begun.elapsed().as_nanos().max(1) as f64 * parts.processors.max(1) as f64);
    let others = (busy - own).max(0.0);
    (RoundUsage { gateway, upstream, generator, stolen }, others)
}

/// Sums up the processor time of threads. Ended threads keep their last value.
struct CpuMeter {
    watched: WatchedPart,
    before: BTreeMap<u32, u64>,
    last: BTreeMap<u32, u64>,
    samples: Vec<UsageSample>,
    used_ns: u64,
    at: Duration,
}

impl CpuMeter {
    fn new(watched: WatchedPart) -> CpuMeter {
        // The processes ran before the round; that time does not count.
        let before = process::cpu_ns_by_thread(&watched.roots.list());
        let last = before.clone();
        CpuMeter { watched, before, last, samples: Vec::new(), used_ns: 0, at: Duration::ZERO }
    }

    /// Adds up the processor time until `at`; a whole interval is a sample too.
    fn look(&mut self, at: Duration, is_whole: bool) {
        let roots = self.watched.roots.list();
        // A part without processes, such as the gateway of the baseline, has no curve.
        if roots.is_empty() {
            return;
        }
        // Threads that have ended keep their last value.
        self.last.extend(process::cpu_ns_by_thread(&roots));
        // A thread that began during the round counts from zero.
        let used = |(thread, ns): (&u32, &u64)| ns.saturating_sub(*self.before.get(thread).unwrap_or(&0));
        let used_ns: u64 = self.last.iter().map(used).sum();
        let passed_ns = (at - self.at).as_nanos().max(1) as f64;
        // A round shorter than an interval has one sample all the same.
        if is_whole || self.samples.is_empty() {
            self.samples.push(UsageSample {
                at_ms: at.as_millis() as u64,
                cpus: used_ns.saturating_sub(self.used_ns) as f64 / passed_ns,
                rss_bytes: process::rss_bytes(&roots),
            });
        }
        (self.used_ns, self.at) = (used_ns, at);
    }

    fn part(self) -> PartUsage {
        let whole = self.samples.iter().filter(|sample| sample.cpus.is_finite());
        PartUsage {
            cpus: self.watched.cpus,
            cpu_ns: self.used_ns,
            cpus_peak: whole
                .clone()
                .map(|sample| sample.cpus.min(self.watched.cpus.max(1) as f64))
                .fold(0.0, f64::max),
            cpu_ns_per_request: 0.0,
            rss_bytes_max: whole.map(|sample| sample.rss_bytes).max().unwrap_or(0),
            samples: self.samples,
        }
    }
}

/// Inputs of the bottleneck decision other than the usage.
#[derive(Clone, Copy, Debug)]
pub(super) struct BottleneckInput {
    /// Duration of the load in nanoseconds.
    pub(super) elapsed_ns: u64,
    pub(super) load: OfferedLoad,
    pub(super) gateway: GatewayProcesses,
    /// Whether upstream and generator share their processors.
    pub(super) shared: bool,
    /// Share of all processors used by other programs.
    pub(super) others: f64,
}

/// The load offered by the generator.
#[derive(Clone, Copy, Debug)]
pub(super) enum OfferedLoad {
    /// Closed loop: as much as is served.
    Closed,
    /// A fixed load, of which this share was served.
    Fixed { answered: f64 },
    /// Connections are only held, so that no part is busy.
    Held,
}

/// The processes of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GatewayProcesses {
    /// The target is the upstream itself.
    Absent,
    /// The gateway was given by its URL only.
    Unknown,
    Known,
}

/// Usage from which a part counts as fully used.
const BUSY: f64 = 0.9;
/// Share of stolen time from which a round is distorted.
const STOLEN: f64 = 0.05;
/// Share of other programs from which they may be the bottleneck.
const OTHERS: f64 = 0.1;
/// Share of served requests from which an offered load counts as met.
const MET: f64 = 0.98;

/// Determines the bottleneck. Pure.
pub(super) fn bottleneck(usage: &RoundUsage, offered: BottleneckInput) -> RoundBottleneck {
    let share =
        |part: &PartUsage| part.cpu_ns as f64 / (offered.elapsed_ns.max(1) * part.cpus.max(1) as u64) as f64;
    let (gateway, upstream, generator) =
        (share(&usage.gateway), share(&usage.upstream), share(&usage.generator));
    let figures = format!(
        "processors busy: gateway {}, upstream {}, generator {}",
        percent(gateway),
        percent(upstream),
        percent(generator)
    );
    let verdict = |who: BottleneckPart, why: &str| RoundBottleneck { who, why: format!("{why}; {figures}") };
    // Before the figures, which mean nothing without requests.
    if matches!(offered.load, OfferedLoad::Held) {
        return verdict(BottleneckPart::Load, "connections were held, nothing was asked");
    }
    // Stolen time lowers the rate of all parts, so no part can be blamed.
    if usage.stolen >= STOLEN {
        return verdict(
            BottleneckPart::Machine,
            &format!("{} of the machine's time was stolen", percent(usage.stolen)),
        );
    }
    // The gateway comes first: at its own limit, a busy generator or upstream does not lower the rate.
    if offered.gateway == GatewayProcesses::Known && gateway >= BUSY {
        return verdict(BottleneckPart::Gateway, "the gateway used its processors to the full");
    }
    if offered.shared && upstream + generator >= BUSY {
        let part = if upstream > generator { BottleneckPart::Upstream } else { BottleneckPart::Generator };
        return verdict(part, "upstream and generator share processors, and those were used to the full");
    }
    if generator >= BUSY {
        return verdict(BottleneckPart::Generator, "the generator used its processors to the full");
    }
    if upstream >= BUSY {
        return verdict(BottleneckPart::Upstream, "the upstream used its processors to the full");
    }
    if matches!(offered.load, OfferedLoad::Fixed { answered } if answered >= MET) {
        return verdict(BottleneckPart::Load, "everything that was offered was answered");
    }
    // Only without a busy part can other programs be the cause.
    if offered.others >= OTHERS {
        let why = format!(
            "no component was saturated, but other programs used {} of the machine",
            percent(offered.others)
        );
        return verdict(BottleneckPart::Machine, &why);
    }
    // The unknown gateway may have been saturated.
    if offered.gateway == GatewayProcesses::Unknown {
        return verdict(BottleneckPart::Unknown, "the gateway's processes are not known");
    }
    verdict(BottleneckPart::Latency, "no component was saturated: connections wait for responses")
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}
