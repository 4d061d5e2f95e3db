//! Counters of one thread. Independent of the requests and the presentation of results.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::summary::{ErrorTotals, LatencyPercentile, LatencySummary, TlsFacts};

/// Upper bound of recorded latencies: one hour.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Points of a percentile curve.
const PERCENTILES: [f64; 24] = [
    1.0, 5.0, 10.0, 25.0, 50.0, 60.0, 70.0, 75.0, 80.0, 85.0, 90.0, 92.5, 95.0, 97.5, 98.0, 99.0, 99.5,
    99.75, 99.9, 99.95, 99.99, 99.995, 99.999, 99.9999,
];
const SECOND_NS: u64 = 1_000_000_000;

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
        Self { second, responses: 0, errors: 0, latencies: histogram(2) }
    }
}

/// Counters of one thread in one phase.
pub(crate) struct ThreadTally {
    pub(crate) requests: u64,
    pub(crate) responses: u64,
    pub(crate) unanswered: u64,
    pub(crate) opened: u64,
    pub(crate) full_handshakes: u64,
    pub(crate) resumed_handshakes: u64,
    pub(crate) closed_by_server: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) statuses: BTreeMap<u16, u64>,
    pub(crate) errors: ErrorTotals,
    pub(crate) latencies: Histogram<u64>,
    pub(crate) corrected: Histogram<u64>,
    pub(crate) connects: Histogram<u64>,
    pub(crate) lags: Histogram<u64>,
    pub(crate) tls: Option<TlsFacts>,
    pub(crate) last_ended_ns: u64,
    last_status: (u16, u64),
    interval: SecondCounts,
    counted_from_ns: u64,
    good: (u16, u16),
    intervals: Option<Sender<SecondCounts>>,
}

impl ThreadTally {
    pub(crate) fn new(good: (u16, u16), intervals: Option<Sender<SecondCounts>>) -> Self {
        Self {
            requests: 0,
            responses: 0,
            unanswered: 0,
            opened: 0,
            full_handshakes: 0,
            resumed_handshakes: 0,
            closed_by_server: 0,
            bytes_sent: 0,
            bytes_received: 0,
            statuses: BTreeMap::new(),
            errors: ErrorTotals::default(),
            latencies: histogram(3),
            corrected: histogram(3),
            connects: histogram(3),
            lags: histogram(3),
            tls: None,
            last_ended_ns: 0,
            last_status: (0, 0),
            interval: SecondCounts::new(0),
            counted_from_ns: u64::MAX,
            good,
            intervals,
        }
    }

    /// Counts requests that start at or after this time.
    pub(crate) fn count_from(&mut self, counted_from_ns: u64) {
        self.counted_from_ns = counted_from_ns;
    }

    /// Records a complete response.
    pub(crate) fn answered(&mut self, moments: RequestMoments, status: u16) {
        if !self.begins(moments) {
            return;
        }
        self.responses += 1;
        self.interval.responses += 1;
        self.add_status(status);
        let latency = moments.ended_ns - moments.sent_ns.unwrap_or(moments.ended_ns);
        self.latencies.saturating_record(latency);
        let mut main = latency;
        if let Some(intended) = moments.intended_ns {
            main = moments.ended_ns.saturating_sub(intended);
            self.corrected.saturating_record(main);
        }
        self.interval.latencies.saturating_record(main);
        if status < self.good.0 || status > self.good.1 {
            self.errors.bad_status += 1;
            self.interval.errors += 1;
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
        self.interval.errors += 1;
        // A timed-out request waited at least this long, so the corrected latency includes it.
        if let (ErrorClass::ResponseTimeout, Some(intended)) = (failure.class, moments.intended_ns) {
            let waited = moments.ended_ns.saturating_sub(intended);
            self.corrected.saturating_record(waited);
            self.interval.latencies.saturating_record(waited);
        }
    }

    /// Records a request cut off by the end of the run.
    pub(crate) fn cut_off(&mut self, moments: RequestMoments) {
        if !self.begins(moments) {
            return;
        }
        self.unanswered += 1;
        if let Some(intended) = moments.intended_ns {
            self.corrected.saturating_record(moments.ended_ns.saturating_sub(intended));
        }
    }

    /// Records the generator's own delay while the connection was free.
    pub(crate) fn lagged(&mut self, lag_ns: u64) {
        self.lags.saturating_record(lag_ns);
    }

    /// Sends the counts of a finished second, even if empty.
    pub(crate) fn turn_second(&mut self, now_ns: u64) {
        let Some(counted_ns) = now_ns.checked_sub(self.counted_from_ns) else { return };
        let second = counted_ns / SECOND_NS;
        if second == self.interval.second {
            return;
        }
        let over = std::mem::replace(&mut self.interval, SecondCounts::new(second));
        if let Some(intervals) = &self.intervals {
            // A dropped receiver does not stop the counting.
            let _ = intervals.send(over);
        }
    }

    /// Sends the last, incomplete second.
    pub(crate) fn finish(&mut self) {
        let (status, count) = std::mem::take(&mut self.last_status);
        if count > 0 {
            *self.statuses.entry(status).or_default() += count;
        }
        let last = std::mem::replace(&mut self.interval, SecondCounts::new(0));
        if let Some(intervals) = self.intervals.take() {
            let _ = intervals.send(last);
        }
    }

    /// Adds the counts of another thread.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.requests += other.requests;
        self.responses += other.responses;
        self.unanswered += other.unanswered;
        self.opened += other.opened;
        self.full_handshakes += other.full_handshakes;
        self.resumed_handshakes += other.resumed_handshakes;
        self.closed_by_server += other.closed_by_server;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        add_errors(&mut self.errors, &other.errors);
        for (mine, theirs) in [
            (&mut self.latencies, &other.latencies),
            (&mut self.corrected, &other.corrected),
            (&mut self.connects, &other.connects),
            (&mut self.lags, &other.lags),
        ] {
            mine.add(theirs).expect("both have the same bounds");
        }
        self.tls = self.tls.take().or_else(|| other.tls.clone());
        self.last_ended_ns = self.last_ended_ns.max(other.last_ended_ns);
    }

    /// Whether a request counts. Requests of the warm-up do not.
    fn begins(&mut self, moments: RequestMoments) -> bool {
        // By the intended send time, so that a late request of the warm-up does not count.
        let began = moments.intended_ns.or(moments.sent_ns).unwrap_or(moments.ended_ns);
        if began < self.counted_from_ns {
            return false;
        }
        self.turn_second(moments.ended_ns);
        self.requests += u64::from(moments.sent_ns.is_some());
        self.last_ended_ns = self.last_ended_ns.max(moments.ended_ns);
        true
    }

    /// Counts a status. Consecutive equal statuses avoid the map.
    fn add_status(&mut self, status: u16) {
        if self.last_status.0 != status {
            let (before, count) = std::mem::replace(&mut self.last_status, (status, 0));
            if count > 0 {
                *self.statuses.entry(before).or_default() += count;
            }
        }
        self.last_status.1 += 1;
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

/// Adds counts by class; the first example is retained.
pub(crate) fn add_errors(sum: &mut ErrorTotals, other: &ErrorTotals) {
    sum.connect += other.connect;
    sum.connect_timeout += other.connect_timeout;
    sum.read += other.read;
    sum.write += other.write;
    sum.response_timeout += other.response_timeout;
    sum.bad_status += other.bad_status;
    sum.protocol += other.protocol;
    for (class, example) in &other.examples {
        sum.examples.entry(class.clone()).or_insert_with(|| example.clone());
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
