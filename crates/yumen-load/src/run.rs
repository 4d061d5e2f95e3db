//! A whole load run: starts the threads, sums up seconds, runs the steps of a ramp, and builds the result.
//! Independent of protocols.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use hdrhistogram::Histogram;

use crate::error::LoadError;
use crate::phase::{PhaseShared, RampTarget};
use crate::plan::{LoadPlan, LoadProtocol, LoadShape};
use crate::prepared::PreparedPlan;
use crate::summary::{
    FORMAT, GeneratorCost, GeneratorReport, IdleSummary, LoadLatencies, LoadProtocols, LoadSummary, RampStep,
    SECOND_NS, SecondSummary,
};
use crate::tally::{SecondCounts, ThreadTally, latency};
use crate::{generator, machine, ramp};

/// Interval of the checks before the start and during a hold.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Progress of a run, reported once per second.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadProgress {
    /// The last complete second.
    pub second: SecondSummary,
    /// Responses so far.
    pub responses: u64,
    /// Errors so far.
    pub errors: u64,
    /// Current step of the ramp, from 1, and the number of steps.
    pub step: Option<(usize, usize)>,
    /// Open idle connections, and the planned number.
    pub idle: Option<(u64, u64)>,
}

/// Result of a phase: of a whole run, or of one step of a ramp.
struct LoadPhase {
    tally: ThreadTally,
    timeline: Vec<SecondSummary>,
    elapsed_ns: u64,
    cost: GeneratorCost,
    idle: Option<IdleSummary>,
}

/// Executes the plan. `watch` is called for every complete second.
pub fn run(plan: &LoadPlan, mut watch: impl FnMut(&LoadProgress)) -> Result<LoadSummary, LoadError> {
    let prepared = Arc::new(PreparedPlan::new(plan)?);
    // Fails before the start with the required number, instead of in the middle of the run.
    machine::allow_open_files((plan.connections * prepared.origins.len()) as u64)?;
    // Of the system's clock, for the record only; durations come from the clock of the run.
    let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let steps = ramp::steps(&plan.kind);
    let mut progress = LoadProgress::default();
    let mut ramp = Vec::new();
    let phase = if steps.is_empty() {
        phase(&prepared, None, &mut progress, &mut watch)?
    } else {
        let mut whole: Option<LoadPhase> = None;
        for (index, step) in steps.iter().enumerate() {
            progress.step = Some((index + 1, steps.len()));
            let one = phase(&prepared, Some(*step), &mut progress, &mut watch)?;
            ramp.push(ramp_step(step, &one));
            whole = Some(match whole {
                None => one,
                // One summary over all steps, with the timelines joined.
                Some(before) => before.followed_by(one),
            });
        }
        whole.ok_or_else(|| LoadError::Plan("the ramp has no step".to_owned()))?
    };
    Ok(summary(&prepared, started.as_millis() as u64, phase, ramp))
}

fn phase(
    prepared: &Arc<PreparedPlan>,
    step: Option<RampTarget>,
    progress: &mut LoadProgress,
    watch: &mut dyn FnMut(&LoadProgress),
) -> Result<LoadPhase, LoadError> {
    // Before any thread starts, because it measures the memory without connections.
    let mut idle = IdleWatch::new(&prepared.plan);
    let shared = PhaseShared::new(prepared.clone(), step);
    let (sender, intervals) = channel();
    let threads = start(&shared, &sender)?;
    // The receiver then disconnects when the last thread ends.
    drop(sender);
    let mut timeline = LoadTimeline::new(prepared.plan.threads);
    let before = gather(&shared, &intervals, &mut timeline, &mut idle, progress, watch);
    let mut tally: Option<ThreadTally> = None;
    // After `gather`, which returns once every thread has dropped its sender.
    for thread in threads {
        let counted = thread
            .join()
            .map_err(|_| LoadError::Plan("a thread of the generator panicked".to_owned()))?
            .map_err(|source| LoadError::System { what: "a thread's event loop", source })?;
        match &mut tally {
            None => tally = Some(counted),
            Some(sum) => sum.merge(&counted),
        }
    }
    let cost = machine::cost_between(&before, &machine::own_cost());
    let tally = tally.ok_or_else(|| LoadError::Plan("there was no thread".to_owned()))?;
    let elapsed_ns = elapsed_ns(&shared, &tally);
    Ok(LoadPhase {
        timeline: timeline.finish(elapsed_ns),
        elapsed_ns,
        tally,
        cost,
        idle: idle.map(IdleWatch::finish),
    })
}

type Thread = JoinHandle<std::io::Result<ThreadTally>>;

fn start(shared: &Arc<PhaseShared>, intervals: &Sender<SecondCounts>) -> Result<Vec<Thread>, LoadError> {
    let threads = 0..shared.prepared.plan.threads;
    let started = threads.map(|thread| {
        let (shared, intervals) = (shared.clone(), intervals.clone());
        let name = format!("load-{thread}");
        std::thread::Builder::new().name(name).spawn(move || generator::run(shared, thread, intervals))
    });
    let threads: Result<_, _> = started.collect();
    threads.map_err(|source| LoadError::System { what: "starting a thread", source })
}

/// Sums up seconds until all threads end. Returns the cost already incurred when counting began.
fn gather(
    shared: &PhaseShared,
    intervals: &Receiver<SecondCounts>,
    timeline: &mut LoadTimeline,
    idle: &mut Option<IdleWatch>,
    progress: &mut LoadProgress,
    watch: &mut dyn FnMut(&LoadProgress),
) -> GeneratorCost {
    let mut before = None;
    loop {
        let began = shared.counted_from_ns().is_some_and(|from| shared.clock.now_ns() >= from);
        if before.is_none() && began {
            // The cost of preparation and warm-up does not count.
            before = Some(machine::own_cost());
        }
        // The start of counting and the hold need finer checks than the seconds of the timeline.
        let wait = if before.is_none() || idle.is_some() { CHECK_INTERVAL } else { Duration::from_secs(1) };
        match intervals.recv_timeout(wait) {
            // A run that ended before counting began has no earlier cost.
            Err(RecvTimeoutError::Disconnected) => return before.unwrap_or_default(),
            Err(RecvTimeoutError::Timeout) => {}
            Ok(interval) => {
                progress.responses += interval.responses;
                progress.errors += interval.errors;
                if let Some(second) = timeline.add(interval) {
                    progress.second = second;
                    watch(progress);
                }
            }
        }
        if let Some(idle) = idle {
            progress.idle = Some(idle.look(shared));
        }
    }
}

fn elapsed_ns(shared: &PhaseShared, tally: &ThreadTally) -> u64 {
    let plan = &shared.prepared.plan;
    match plan.limits.duration_ms {
        _ if matches!(plan.kind, LoadShape::Idle { .. }) => {
            shared.clock.now_ns().saturating_sub(shared.counted_from_ns().unwrap_or(0))
        }
        // The planned duration, not the last response: a stall at the end must lower the rate.
        Some(duration_ms) if plan.limits.count.is_none() => duration_ms * 1_000_000,
        // At least 1 ns, because rates divide by it.
        _ => tally.last_ended_ns.saturating_sub(shared.counted_from_ns().unwrap_or(0)).max(1),
    }
}

/// Sums up seconds by thread; a second is complete once every thread has sent its counts.
struct LoadTimeline {
    threads: usize,
    open: BTreeMap<u64, (usize, SecondCounts)>,
    done: BTreeMap<u64, SecondSummary>,
}

impl LoadTimeline {
    fn new(threads: usize) -> Self {
        Self { threads, open: BTreeMap::new(), done: BTreeMap::new() }
    }

    /// Adds a thread's second; returns the sum if that second is complete.
    fn add(&mut self, interval: SecondCounts) -> Option<SecondSummary> {
        let second = interval.second;
        let parts = match self.open.get_mut(&second) {
            None => {
                self.open.insert(second, (1, interval));
                1
            }
            Some((parts, sum)) => {
                *parts += 1;
                sum.responses += interval.responses;
                sum.errors += interval.errors;
                sum.latencies.add(&interval.latencies).expect("both have the same bounds");
                *parts
            }
        };
        if parts < self.threads {
            return None;
        }
        let (_, sum) = self.open.remove(&second)?;
        let complete = to_second(&sum);
        self.done.insert(second, complete.clone());
        Some(complete)
    }

    /// All seconds of the run, including those without events.
    fn finish(mut self, elapsed_ns: u64) -> Vec<SecondSummary> {
        // Seconds that not every thread completed, such as the last one.
        for (second, (_, sum)) in std::mem::take(&mut self.open) {
            self.done.insert(second, to_second(&sum));
        }
        let seconds = elapsed_ns.div_ceil(SECOND_NS);
        (0..seconds)
            .map(|second| {
                let found = self.done.remove(&second).unwrap_or_default();
                // The run may end within its last second.
                SecondSummary { second, span_ns: (elapsed_ns - second * SECOND_NS).min(SECOND_NS), ..found }
            })
            .collect()
    }
}

fn to_second(sum: &SecondCounts) -> SecondSummary {
    SecondSummary {
        second: sum.second,
        span_ns: SECOND_NS,
        responses: sum.responses,
        errors: sum.errors,
        p50_ns: sum.latencies.value_at_percentile(50.0),
        p99_ns: sum.latencies.value_at_percentile(99.0),
        max_ns: sum.latencies.max(),
    }
}

/// Measures the target's memory without connections, and again after the hold time.
struct IdleWatch {
    found: IdleSummary,
    hold: Duration,
    opening: Instant,
    all_open: Option<Instant>,
}

impl IdleWatch {
    fn new(plan: &LoadPlan) -> Option<Self> {
        let LoadShape::Idle { hold_ms, requests_first, pids } = &plan.kind else { return None };
        // Listed once, before the connections: both measurements then cover the same processes.
        let pids = machine::with_children(pids);
        let rss_before_bytes = machine::rss_bytes(&pids);
        let planned = plan.connections as u64;
        let found = IdleSummary {
            wanted: planned,
            requests_first: *requests_first,
            pids,
            rss_before_bytes,
            ..IdleSummary::default()
        };
        Some(Self { found, hold: Duration::from_millis(*hold_ms), opening: Instant::now(), all_open: None })
    }

    /// Returns the open and the planned connections.
    fn look(&mut self, shared: &PhaseShared) -> (u64, u64) {
        let barrier = &shared.idle;
        let (opened, failed) =
            (barrier.opened.load(Ordering::Acquire), barrier.failed.load(Ordering::Acquire));
        // The figures were taken at the release; later closes do not count.
        if barrier.released.load(Ordering::Acquire) {
            return (self.found.held, self.found.wanted);
        }
        // A failed connection ends the opening too; otherwise one refusal would hold the run forever.
        if self.all_open.is_none() && opened + failed == self.found.wanted {
            self.all_open = Some(Instant::now());
            self.found.opening_ns = self.opening.elapsed().as_nanos() as u64;
        }
        let lost = barrier.lost.load(Ordering::Acquire);
        if let Some(since) = self.all_open
            && since.elapsed() >= self.hold
        {
            self.found.held_ns = since.elapsed().as_nanos() as u64;
            // Before the release, while the connections are still open.
            self.found.rss_held_bytes = machine::rss_bytes(&self.found.pids);
            self.found.lost = lost;
            self.found.held = opened - lost;
            barrier.released.store(true, Ordering::Release);
        }
        (opened - lost, self.found.wanted)
    }

    fn finish(mut self) -> IdleSummary {
        let found = &mut self.found;
        if !found.pids.is_empty() && found.held > 0 {
            // As floats: memory may have shrunk.
            let grown = found.rss_held_bytes as f64 - found.rss_before_bytes as f64;
            found.rss_per_connection_bytes = Some(grown / found.held as f64);
        }
        self.found
    }
}

impl LoadPhase {
    fn followed_by(mut self, next: Self) -> Self {
        self.tally.merge(&next.tally);
        let offset = self.timeline.len() as u64;
        self.timeline.extend(
            next.timeline
                .into_iter()
                .map(|second| SecondSummary { second: second.second + offset, ..second }),
        );
        self.elapsed_ns += next.elapsed_ns;
        self.cost.cpu_user_ns += next.cost.cpu_user_ns;
        self.cost.cpu_system_ns += next.cost.cpu_system_ns;
        // A peak of the whole process, so the later value includes the earlier one.
        self.cost.rss_max_bytes = next.cost.rss_max_bytes;
        self
    }
}

fn ramp_step(step: &RampTarget, phase: &LoadPhase) -> RampStep {
    let tally = &phase.tally;
    // The last connection counts for its share of the time, even if it ends sooner.
    let seconds = (phase.elapsed_ns as f64 / 1e9).max(step.connections as f64 / step.rate);
    let calls = step.connections * u64::from(step.calls);
    // A response with a bad status counts as a response and as an error.
    let good = tally.totals.responses - tally.errors.bad_status;
    // A partial second would lower the minimum rate.
    let whole = phase.timeline.iter().filter(|second| second.span_ns == SECOND_NS);
    let mut rates: Vec<f64> = whole.map(|second| second.responses as f64).collect();
    let reply_rate = tally.totals.responses as f64 / seconds;
    // A step within one second has no whole one.
    if rates.is_empty() {
        rates.push(reply_rate);
    }
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    RampStep {
        connection_rate: step.rate,
        demanded_request_rate: step.rate * f64::from(step.calls),
        achieved_connection_rate: tally.connections.opened as f64 / seconds,
        request_rate: tally.totals.requests as f64 / seconds,
        reply_rate_min: rates.iter().copied().fold(f64::INFINITY, f64::min),
        reply_rate,
        reply_rate_max: rates.iter().copied().fold(0.0, f64::max),
        reply_rate_stdev: variance.sqrt(),
        net_io_bytes: (tally.transfer.bytes_sent + tally.transfer.bytes_received) as f64 / seconds,
        calls,
        responses: tally.totals.responses,
        errors: tally.errors.clone(),
        error_percent: calls.saturating_sub(good) as f64 * 100.0 / calls as f64,
        latency: latency(&tally.latencies.response),
    }
}

fn summary(
    prepared: &PreparedPlan,
    started_unix_ms: u64,
    phase: LoadPhase,
    ramp: Vec<RampStep>,
) -> LoadSummary {
    let LoadPhase { mut tally, timeline, elapsed_ns, cost, idle } = phase;
    // Before the parts of the tally are moved.
    let statuses = tally.take_statuses();
    let recorded = |histogram: &Histogram<u64>| (!histogram.is_empty()).then(|| latency(histogram));
    let open = matches!(prepared.plan.kind, LoadShape::Open { .. });
    let protocol = match prepared.plan.protocol {
        LoadProtocol::Http1 => "HTTP/1.1",
        LoadProtocol::Http2 => "HTTP/2",
    };
    LoadSummary {
        format: FORMAT,
        plan: prepared.plan.clone(),
        started_unix_ms,
        elapsed_ns,
        protocols: LoadProtocols { protocol: protocol.to_owned(), tls: tally.tls },
        connections: tally.connections,
        totals: tally.totals,
        transfer: tally.transfer,
        latencies: LoadLatencies {
            response: latency(&tally.latencies.response),
            // Only an open loop has intended send times.
            corrected: open.then(|| latency(&tally.latencies.corrected)),
            connect: recorded(&tally.latencies.connect),
            schedule_lag: open.then(|| latency(&tally.latencies.schedule_lag)),
        },
        statuses,
        errors: tally.errors,
        timeline,
        ramp,
        idle,
        generator: GeneratorReport { cost, machine: machine::facts(), versions: versions() },
    }
}

fn versions() -> BTreeMap<String, String> {
    let entry = |name: &str, version: &str| (name.to_owned(), version.to_owned());
    BTreeMap::from([
        entry("yumen-load", env!("CARGO_PKG_VERSION")),
        entry("kernel", &machine::facts().kernel),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tally::histogram;

    fn counts(second: u64, responses: u64) -> SecondCounts {
        SecondCounts { second, responses, errors: 0, latencies: histogram(2) }
    }

    /// Observed part and responses of each second after 1.25 s.
    fn check(sent: &[(u64, u64)], expected: &[(u64, u64)]) {
        let mut timeline = LoadTimeline::new(1);
        for (second, responses) in sent {
            timeline.add(counts(*second, *responses));
        }
        let seconds = timeline.finish(1_250_000_000);
        let found: Vec<(u64, u64)> =
            seconds.iter().map(|second| (second.span_ns, second.responses)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn last_second_of_a_run_has_its_observed_part() {
        check(&[(0, 40), (1, 10)], &[(SECOND_NS, 40), (250_000_000, 10)]);
        check(&[(1, 10)], &[(SECOND_NS, 0), (250_000_000, 10)]);
        // The generator may still turn the second after the planned end.
        check(&[(0, 40), (1, 10), (2, 0)], &[(SECOND_NS, 40), (250_000_000, 10)]);
    }

    #[test]
    fn charts_read_whole_seconds_only() {
        let timeline = [(0, SECOND_NS), (1, SECOND_NS), (2, 1)];
        let second = |(second, span_ns)| SecondSummary { second, span_ns, ..SecondSummary::default() };
        let summary = |elapsed_ns| LoadSummary {
            timeline: timeline.into_iter().map(second).collect(),
            elapsed_ns,
            ..LoadSummary::default()
        };
        assert_eq!(summary(2_000_000_001).whole_seconds().count(), 2);
        assert_eq!(summary(1_500_000_000).whole_seconds().count(), 1, "a record without spans");
    }
}
