//! Senders of log entries: one task on the control runtime per sink of the published configuration.
//!
//! Starts and counts senders, and reports failing sinks as problems. Must not know entries or plugins.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use yumen_base::Problem;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_outbound::{SenderTools, SinkStanding, run_sender};
use yumen_plugin::sink::SinkResult;
use yumen_plugin::{SinkEncoder, SinkHandle, SinkQueue, SinkRegistry, SinkSpec};
use yumen_snapshot::Snapshot;

use crate::control::{ControlHandle, ControlMessage, ProblemSource};
use crate::process::node_log;

/// Time for waiting entries after the last connection has ended.
const FLUSH_WITHIN: Duration = Duration::from_secs(5);
/// Interval of checks for drops, failures and ended senders.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time without a success after which a failing sink is a problem, in milliseconds.
const FAILING_MS: u64 = 60_000;
/// Time for which drops are a problem, in milliseconds.
const DROPS_REPORTED_MS: u64 = 60_000;
/// Maximum number of sinks with series of their own.
const SERIES_MAX: usize = 500;

/// All senders of the process.
pub(crate) struct LogSenders {
    registry: Arc<SinkRegistry>,
    tools: SenderTools,
    stop: watch::Sender<bool>,
    sinks: Mutex<SinkTable>,
}

#[derive(Default)]
struct SinkTable {
    running: Vec<RunningSink>,
    /// Counts of senders that have ended.
    ended: BTreeMap<SinkLabels, SinkTotals>,
}

/// One sender.
struct RunningSink {
    queue: Arc<SinkQueue>,
    standing: Arc<SinkStanding>,
    task: JoinHandle<()>,
    /// Drops at the last check.
    dropped: u64,
    /// Time of the last drops; `None` before the first.
    dropped_ms: Option<u64>,
}

/// Plugin and address, as metric labels.
type SinkLabels = (&'static str, String);

/// Counts of the sinks with the same labels.
#[derive(Debug, Clone, Copy, Default)]
struct SinkTotals {
    by_result: [u64; SinkResult::ALL.len()],
    sent_batches: u64,
    failed_batches: u64,
    waiting_entries: u64,
    waiting_bytes: u64,
}

impl SinkTotals {
    fn add(&mut self, other: &SinkTotals) {
        self.by_result.iter_mut().zip(other.by_result).for_each(|(sum, count)| *sum += count);
        self.sent_batches += other.sent_batches;
        self.failed_batches += other.failed_batches;
        self.waiting_entries += other.waiting_entries;
        self.waiting_bytes += other.waiting_bytes;
    }
}

impl RunningSink {
    fn spec(&self) -> &SinkSpec {
        &self.queue.spec
    }

    fn labels(&self) -> SinkLabels {
        (self.spec().plugin, self.spec().address.to_string())
    }

    fn totals(&self) -> SinkTotals {
        let (sent_batches, failed_batches) = self.standing.batches();
        let (waiting_entries, waiting_bytes) = self.queue.waiting();
        let by_result = SinkResult::ALL.map(|result| self.queue.ended(result));
        SinkTotals { by_result, sent_batches, failed_batches, waiting_entries, waiting_bytes }
    }

    /// Logs entries that were dropped since the last check.
    fn note_drops(&mut self, now_ms: u64) {
        let full = self.queue.ended(SinkResult::DroppedFull);
        let all = full + self.queue.ended(SinkResult::DroppedFailed);
        if all > self.dropped {
            self.dropped_ms = Some(now_ms);
            if full > 0 {
                let (spec, dropped) = (self.spec(), all - self.dropped);
                tracing::error!(
                    plugin = spec.plugin,
                    sink = %spec.address,
                    dropped,
                    "max pending entries limit exceeded. discarding entry."
                );
            }
            self.dropped = all;
        }
    }

    /// The problem of a sink that fails or drops entries.
    fn problem(&self, now_ms: u64) -> Option<Problem> {
        let spec = self.spec();
        let object = format!("plugins/{}", spec.plugin);
        let address = &spec.address;
        let failing = self.standing.failing().filter(|(since_ms, _)| now_ms >= since_ms + FAILING_MS);
        if let Some((_, error)) = failing {
            let message = format!("no entry could be sent to {address} for more than a minute: {error}");
            let hint = "restore the server or correct the address; entries wait up to max_pending_entries";
            return Some(Problem::warning(object, "", message).hint(hint));
        }
        let has_dropped = self.dropped_ms.is_some_and(|dropped_ms| now_ms < dropped_ms + DROPS_REPORTED_MS);
        has_dropped.then(|| {
            let message = format!("entries for {address} were dropped within the last minute");
            let hint = "yumen_sink_entries_total counts them; raise max_pending_entries or max_retry_count, or make \
                        the server faster";
            Problem::warning(object, "", message).hint(hint)
        })
    }
}

impl LogSenders {
    /// Senders for the queues of `registry`.
    pub(crate) fn new(registry: Arc<SinkRegistry>) -> Arc<LogSenders> {
        // A plugin may send the lines of the node log to one of the sinks.
        node_log::forward_to(registry.clone());
        let (stop, stopped) = watch::channel(false);
        Arc::new(LogSenders { registry, tools: SenderTools::new(stopped), stop, sinks: Mutex::default() })
    }

    /// Opens a sink of the node itself, whose sender starts at the next check.
    pub(crate) fn open(&self, spec: SinkSpec, encoder: Arc<dyn SinkEncoder>) -> SinkHandle {
        self.registry.open(spec, encoder)
    }

    fn sinks(&self) -> MutexGuard<'_, SinkTable> {
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts senders for new sinks after each publication, and checks all of them each second.
    pub(crate) async fn follow(
        self: Arc<Self>,
        mut snapshots: watch::Receiver<Arc<Snapshot>>,
        control: ControlHandle,
    ) {
        let mut reported = Vec::new();
        loop {
            self.start_new();
            let problems = self.check();
            if problems != reported {
                reported.clone_from(&problems);
                let message = ControlMessage::Problems(ProblemSource::Sinks, problems);
                if control.messages.send(message).is_err() {
                    return;
                }
            }
            tokio::select! {
                changed = snapshots.changed() => if changed.is_err() {
                    return;
                },
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
        }
    }

    fn start_new(&self) {
        let mut sinks = self.sinks();
        for queue in self.registry.take_new() {
            let Some(receiver) = queue.take_receiver() else { continue };
            let standing = Arc::<SinkStanding>::default();
            let task = tokio::spawn(run_sender(receiver, self.tools.clone(), standing.clone()));
            tracing::info!(plugin = queue.spec.plugin, sink = %queue.spec.address, "sender started");
            sinks.running.push(RunningSink { queue, standing, task, dropped: 0, dropped_ms: None });
        }
    }

    /// Removes ended senders and returns the problems of the others.
    fn check(&self) -> Vec<Problem> {
        let now_ms = self.tools.now_ms();
        let mut sinks = self.sinks();
        let SinkTable { running, ended } = &mut *sinks;
        running.retain_mut(|sink| {
            sink.note_drops(now_ms);
            let has_ended = sink.task.is_finished();
            if has_ended {
                ended.entry(sink.labels()).or_default().add(&sink.totals());
            }
            !has_ended
        });
        running.iter().filter_map(|sink| sink.problem(now_ms)).collect()
    }

    /// Sends the waiting entries, for at most 5 s. The workers have handed theirs over.
    pub(crate) fn finish(&self, runtime: &Runtime) {
        {
            // A sink of the last publication may have no sender yet.
            let _inside = runtime.enter();
            self.start_new();
        }
        let mut running = std::mem::take(&mut self.sinks().running);
        if running.is_empty() {
            return;
        }
        // Fails only if all senders have ended.
        let _ = self.stop.send(true);
        runtime.block_on(async {
            let ending = async {
                for sink in &mut running {
                    // A sender that panicked has ended too.
                    let _ = (&mut sink.task).await;
                }
            };
            // The rest is counted below.
            let _ = tokio::time::timeout(FLUSH_WITHIN, ending).await;
        });
        for sink in running {
            let (entries, bytes) = sink.queue.waiting();
            if entries > 0 {
                sink.task.abort();
                sink.queue.settle(entries, bytes, SinkResult::DroppedStop);
                let (plugin, address) = sink.labels();
                tracing::warn!(plugin, sink = address, entries, "process ended, waiting entries dropped");
            }
        }
    }

    /// Counts and last errors of the sinks, for `yumen top`.
    pub(crate) fn document(&self) -> Value {
        let errors: BTreeMap<SinkLabels, String> = {
            let sinks = self.sinks();
            let failing =
                sinks.running.iter().filter_map(|sink| Some((sink.labels(), sink.standing.failing()?.1)));
            failing.collect()
        };
        let row = |(labels, totals): (&SinkLabels, &SinkTotals)| {
            let of = |result: SinkResult| totals.by_result[result as usize];
            let sent = of(SinkResult::Sent);
            json!({
                "plugin": labels.0,
                "sink": labels.1,
                "sent": sent,
                "dropped": totals.by_result.iter().sum::<u64>() - sent,
                "waiting": totals.waiting_entries,
                "waiting_bytes": totals.waiting_bytes,
                "error": errors.get(labels),
            })
        };
        self.totals().iter().map(row).collect()
    }

    /// Totals by labels; sinks beyond the limit share the label `other`.
    fn totals(&self) -> BTreeMap<SinkLabels, SinkTotals> {
        let sinks = self.sinks();
        let mut all = sinks.ended.clone();
        for sink in &sinks.running {
            all.entry(sink.labels()).or_default().add(&sink.totals());
        }
        if all.len() > SERIES_MAX {
            for (labels, totals) in all.split_off(&all.keys().nth(SERIES_MAX).cloned().unwrap_or_default()) {
                all.entry((labels.0, "other".to_owned())).or_default().add(&totals);
            }
        }
        all
    }
}

impl MetricSource for LogSenders {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        gather(&self.totals(), out);
    }
}

fn gather(totals: &BTreeMap<SinkLabels, SinkTotals>, out: &mut Vec<MetricFamily>) {
    let series = |labels: &SinkLabels, more: Option<(&'static str, &str)>, value: u64| {
        let (plugin, sink) = labels;
        let mut labels = vec![("plugin", (*plugin).to_owned()), ("sink", sink.clone())];
        labels.extend(more.map(|(name, value)| (name, value.to_owned())));
        MetricSeries { labels, value: MetricValue::Number(value as f64) }
    };
    let mut family = |name: &'static str, help: &'static str, kind, samples: Vec<MetricSeries>| {
        out.push(MetricFamily { name: name.into(), help: help.into(), kind, samples });
    };
    let entries = totals.iter().flat_map(|(labels, totals)| {
        SinkResult::ALL
            .iter()
            .zip(totals.by_result)
            .map(move |(result, count)| series(labels, Some(("result", result.name())), count))
    });
    family(
        "yumen_sink_entries_total",
        "Log entries by sink and result; dropped_full: too many were waiting, dropped_failed: the sink did not take them, \
         dropped_stop: the process ended first.",
        MetricKind::Counter,
        entries.collect(),
    );
    let batches = totals.iter().flat_map(|(labels, totals)| {
        [("sent", totals.sent_batches), ("failed", totals.failed_batches)]
            .map(|(result, count)| series(labels, Some(("result", result)), count))
    });
    family(
        "yumen_sink_batches_total",
        "Batches that were sent, and failed tries, by sink.",
        MetricKind::Counter,
        batches.collect(),
    );
    family(
        "yumen_sink_waiting_entries",
        "Log entries that wait for their sink.",
        MetricKind::Gauge,
        totals.iter().map(|(labels, totals)| series(labels, None, totals.waiting_entries)).collect(),
    );
    family(
        "yumen_sink_waiting_bytes",
        "Size of the log entries that wait for their sink.",
        MetricKind::Gauge,
        totals.iter().map(|(labels, totals)| series(labels, None, totals.waiting_bytes)).collect(),
    );
}

/// Describes the metric families, for the reference.
pub(crate) fn describe(out: &mut Vec<MetricFamily>) {
    let labels = ("http-logger", "http://127.0.0.1:9000".to_owned());
    gather(&BTreeMap::from([(labels, SinkTotals::default())]), out);
}
