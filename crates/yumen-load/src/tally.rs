//! Counters of one thread. Independent of the requests and the presentation of results.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::plan::StatusRange;
use crate::summary::{
    ConnectionTotals, ErrorTotals, LatencyPercentile, LatencySummary, RequestTotals, SECOND_NS, TlsFacts,
    TransferTotals,
};

/// Upper bound of recorded latencies: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Points of a percentile curve.
const PERCENTILES: [f64; 24] = [
    1.0, 5.0, 10.0, 25.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.5, 98.0, 99.0, 99.5,
    99.75, 99.9, 99.95, 99.99, 99.995, 99.999, 99.9999,
];
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorClass {
    Connect,
    ConnectTimeout,
    Read,
    Write,
    ResponseTimeout,
    Protocol,
}

#[derive(Clone, Debug)]
pub(crate) struct RequestFailure {
    pub(crate) class: ErrorClass,
    pub(crate) message: String,
}

impl RequestFailure {
    pub(crate) fn new(class: ErrorClass, message: impl ToString) -> Self {
        Self { class, message: message.to_string() }
    }
}

/// Times of one request on the run's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestMoments {
    /// Intended send time; open loop only.
    pub(crate) intended_ns: Option<u64>,
    /// Time of the first byte sent; `None` if the request was not sent.
    pub(crate) sent_ns: Option<u64>,
    /// End of the request, successful or not.
    pub(crate) ended_ns: u64,
}

/// Counters of one second, for the timeline.
#[derive(Debug)]
pub(crate) struct SecondCounts {
    /// Seconds since the start of counting.
    pub(crate) second: u64,
    pub(crate) responses: u64,
    pub(crate) errors: u64,
    pub(crate) latencies: Histogram<u64>,
}

impl SecondCounts {
    fn new(second: u64) -> Self {
        // Two digits: one histogram per thread and second is sent, and three digits would cost several times the memory.
        Self { second, responses: 0, errors: 0, latencies: histogram(2) }
    }
}

/// Histograms of one thread.
pub(crate) struct LatencyHistograms {
    /// From the first byte of a request to the last byte of its response.
    pub(crate) response: Histogram<u64>,
    /// Open loop: from the intended send time.
    pub(crate) corrected: Histogram<u64>,
    /// From the start of connecting until requests can be sent.
    pub(crate) connect: Histogram<u64>,
    /// Open loop: delay of the generator itself.
    pub(crate) schedule_lag: Histogram<u64>,
}

impl LatencyHistograms {
    fn new() -> Self {
        Self {
            response: histogram(3),
            corrected: histogram(3),
            connect: histogram(3),
            schedule_lag: histogram(3),
        }
    }

    fn add(&mut self, other: &Self) {
        for (sum, other) in [
            (&mut self.response, &other.response),
            (&mut self.corrected, &other.corrected),
            (&mut self.connect, &other.connect),
            (&mut self.schedule_lag, &other.schedule_lag),
        ] {
            sum.add(other).expect("both have the same bounds");
        }
    }
}

/// Responses by status. Consecutive equal statuses avoid the map.
#[derive(Default)]
struct StatusCounts {
    by_status: BTreeMap<u16, u64>,
    last_status: u16,
    last_count: u64,
}

impl StatusCounts {
    fn add(&mut self, status: u16) {
        if self.last_status != status {
            self.settle();
            self.last_status = status;
        }
        self.last_count += 1;
    }

    /// Moves the count of the last status into the map.
    fn settle(&mut self) {
        let count = std::mem::take(&mut self.last_count);
        if count > 0 {
            *self.by_status.entry(self.last_status).or_default() += count;
        }
    }
}

/// The current second, and the channel for finished ones.
struct SecondTimeline {
    current: SecondCounts,
    counted_from_ns: u64,
    finished: Option<Sender<SecondCounts>>,
}

impl SecondTimeline {
    /// Sends the current second if `now_ns` is in a later one, even if empty.
    fn advance(&mut self, now_ns: u64) {
        // During the warm-up there is no second.
        let Some(counted_ns) = now_ns.checked_sub(self.counted_from_ns) else { return };
        let second = counted_ns / SECOND_NS;
        if second == self.current.second {
            return;
        }
        // Empty seconds are sent too: a second is complete only with the counts of every thread.
        let over = std::mem::replace(&mut self.current, SecondCounts::new(second));
        if let Some(finished) = &self.finished {
            // A dropped receiver does not stop the counting.
            let _ = finished.send(over);
        }
    }

    /// Sends the last, incomplete second.
    fn finish(&mut self) {
        let last = std::mem::replace(&mut self.current, SecondCounts::new(0));
        if let Some(finished) = self.finished.take() {
            let _ = finished.send(last);
        }
    }
}

/// Counters of one thread in one phase.
pub(crate) struct ThreadTally {
    pub(crate) totals: RequestTotals,
    pub(crate) connections: ConnectionTotals,
    pub(crate) transfer: TransferTotals,
    pub(crate) errors: ErrorTotals,
    pub(crate) latencies: LatencyHistograms,
    pub(crate) tls: Option<TlsFacts>,
    pub(crate) last_ended_ns: u64,
    statuses: StatusCounts,
    timeline: SecondTimeline,
    good_statuses: StatusRange,
}

impl ThreadTally {
    /// Empty counters. `finished` receives each second of the timeline.
    pub(crate) fn new(good_statuses: StatusRange, finished: Option<Sender<SecondCounts>>) -> Self {
        Self {
            totals: RequestTotals::default(),
            connections: ConnectionTotals::default(),
            transfer: TransferTotals::default(),
            errors: ErrorTotals::default(),
            latencies: LatencyHistograms::new(),
            tls: None,
            last_ended_ns: 0,
            statuses: StatusCounts::default(),
            timeline: SecondTimeline { current: SecondCounts::new(0), counted_from_ns: u64::MAX, finished },
            good_statuses,
        }
    }

    /// Counts requests that start at or after this time.
    pub(crate) fn count_from(&mut self, counted_from_ns: u64) {
        self.timeline.counted_from_ns = counted_from_ns;
    }

    /// Records a complete response.
    pub(crate) fn answered(&mut self, moments: RequestMoments, status: u16) {
        if !self.begins(moments) {
            return;
        }
        self.totals.responses += 1;
        self.timeline.current.responses += 1;
        self.statuses.add(status);
        let latency = moments.ended_ns - moments.sent_ns.unwrap_or(moments.ended_ns);
        // Saturating: a latency beyond the bound counts as the bound instead of being lost.
        self.latencies.response.saturating_record(latency);
        let mut main = latency;
        if let Some(intended) = moments.intended_ns {
            main = moments.ended_ns.saturating_sub(intended);
            self.latencies.corrected.saturating_record(main);
        }
        self.timeline.current.latencies.saturating_record(main);
        // After the latency, because a bad status is a response too.
        if !self.good_statuses.contains(status) {
            self.errors.bad_status += 1;
            self.timeline.current.errors += 1;
            // One example per class: a message per error would slow a failing run.
            if self.errors.bad_status == 1 {
                self.errors.examples.insert("bad_status".to_owned(), format!("status {status}"));
            }
        }
    }

    /// Records a request without a response.
    pub(crate) fn failed(&mut self, moments: RequestMoments, failure: RequestFailure) {
        if !self.begins(moments) {
            return;
        }
        let (name, count) = slot(&mut self.errors, failure.class);
        *count += 1;
        if *count == 1 {
            self.errors.examples.insert(name.to_owned(), failure.message);
        }
        self.timeline.current.errors += 1;
        // A timed-out request waited at least this long, so the corrected latency includes it.
        if let (ErrorClass::ResponseTimeout, Some(intended)) = (failure.class, moments.intended_ns) {
            let waited = moments.ended_ns.saturating_sub(intended);
            self.latencies.corrected.saturating_record(waited);
            self.timeline.current.latencies.saturating_record(waited);
        }
    }

    /// Records a request cut off by the end of the run.
    pub(crate) fn cut_off(&mut self, moments: RequestMoments) {
        if !self.begins(moments) {
            return;
        }
        self.totals.unanswered += 1;
        if let Some(intended) = moments.intended_ns {
            self.latencies.corrected.saturating_record(moments.ended_ns.saturating_sub(intended));
        }
    }

    /// Records the generator's own delay while the connection was free.
    pub(crate) fn lagged(&mut self, lag_ns: u64) {
        self.latencies.schedule_lag.saturating_record(lag_ns);
    }

    /// Sends the counts of a finished second, even if empty.
    pub(crate) fn turn_second(&mut self, now_ns: u64) {
        self.timeline.advance(now_ns);
    }

    /// Completes the counts and sends the last, incomplete second.
    pub(crate) fn finish(&mut self) {
        self.statuses.settle();
        self.timeline.finish();
    }

    /// Responses by status; complete after [`ThreadTally::finish`].
    pub(crate) fn take_statuses(&mut self) -> BTreeMap<u16, u64> {
        std::mem::take(&mut self.statuses.by_status)
    }

    /// Adds the counts of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.totals.add(&other.totals);
        self.connections.add(&other.connections);
        self.transfer.add(&other.transfer);
        for (status, count) in &other.statuses.by_status {
            *self.statuses.by_status.entry(*status).or_default() += count;
        }
        self.errors.add(&other.errors);
        self.latencies.add(&other.latencies);
        // The threads have one configuration, so the facts of one suffice.
        self.tls = self.tls.take().or_else(|| other.tls.clone());
        self.last_ended_ns = self.last_ended_ns.max(other.last_ended_ns);
    }

    /// Whether a request counts. Requests of the warm-up do not.
    fn begins(&mut self, moments: RequestMoments) -> bool {
        // By the intended send time, so that a late request of the warm-up does not count.
        let began = moments.intended_ns.or(moments.sent_ns).unwrap_or(moments.ended_ns);
        if began < self.timeline.counted_from_ns {
            return false;
        }
        // By the end: a response counts in the second in which it arrives.
        self.timeline.advance(moments.ended_ns);
        self.totals.requests += u64::from(moments.sent_ns.is_some());
        self.last_ended_ns = self.last_ended_ns.max(moments.ended_ns);
        true
    }
}

fn slot(errors: &mut ErrorTotals, class: ErrorClass) -> (&'static str, &mut u64) {
    match class {
        ErrorClass::Connect => ("connect", &mut errors.connect),
        ErrorClass::ConnectTimeout => ("connect_timeout", &mut errors.connect_timeout),
        ErrorClass::Read => ("read", &mut errors.read),
        ErrorClass::Write => ("write", &mut errors.write),
        ErrorClass::ResponseTimeout => ("response_timeout", &mut errors.response_timeout),
        ErrorClass::Protocol => ("protocol", &mut errors.protocol),
    }
}

/// Creates a histogram of nanoseconds with the given significant digits.
pub(crate) fn histogram(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, digits).expect("the bounds and digits are valid")
}

/// Summary of a distribution.
pub(crate) fn latency(histogram: &Histogram<u64>) -> LatencySummary {
    let mut bytes = Vec::new();
    V2DeflateSerializer::new().serialize(histogram, &mut bytes).expect("a vector takes whatever is written");
    let point = |percentile| LatencyPercentile { percentile, ns: histogram.value_at_percentile(percentile) };
    let empty = histogram.is_empty();
    LatencySummary {
        count: histogram.len(),
        min_ns: if empty { 0 } else { histogram.min() },
        mean_ns: histogram.mean(),
        stdev_ns: histogram.stdev(),
        max_ns: histogram.max(),
        percentiles: if empty { Vec::new() } else { PERCENTILES.into_iter().map(point).collect() },
        histogram: BASE64_STANDARD.encode(bytes),
    }
}

#[cfg(test)]
mod tests;
