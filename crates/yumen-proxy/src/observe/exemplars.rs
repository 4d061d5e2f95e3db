//! Traced requests beside the histogram of durations: the last one of each bucket.
//!
//! Only sampled requests reach this table, and a worker never waits for its lock.

use std::sync::{Mutex, PoisonError};

use yumen_plugin::ExchangeTrace;

use super::counters::DURATION_BOUNDS_US;

/// A traced request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DurationExemplar {
    trace: ExchangeTrace,
    pub(crate) duration_us: u64,
    pub(crate) unix_ms: u64,
}

impl DurationExemplar {
    /// The digits of the trace identifier.
    pub(crate) fn trace_id(&self) -> String {
        let mut text = Vec::with_capacity(32);
        self.trace.write_trace_id(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// The last traced requests of a worker, by bucket.
#[derive(Debug, Default)]
pub(crate) struct ExemplarTable {
    by_bucket: Mutex<Vec<Option<DurationExemplar>>>,
}

impl ExemplarTable {
    /// Keeps a traced request in place of the former one of its bucket, unless the table is being read.
    #[cold]
    pub(crate) fn note(&self, trace: &ExchangeTrace, duration_us: u64, unix_ms: u64) {
        let Ok(mut by_bucket) = self.by_bucket.try_lock() else { return };
        by_bucket.resize(DURATION_BOUNDS_US.len() + 1, None);
        let bucket = DURATION_BOUNDS_US.partition_point(|bound| *bound < duration_us);
        by_bucket[bucket] = Some(DurationExemplar { trace: *trace, duration_us, unix_ms });
    }

    /// The newest request of each bucket over all tables.
    pub(crate) fn newest<'t>(
        tables: impl Iterator<Item = &'t ExemplarTable>,
    ) -> impl Iterator<Item = DurationExemplar> {
        let mut newest: Vec<Option<DurationExemplar>> = Vec::new();
        for table in tables {
            let by_bucket = table.by_bucket.lock().unwrap_or_else(PoisonError::into_inner);
            newest.resize(newest.len().max(by_bucket.len()), None);
            for (known, other) in newest.iter_mut().zip(&*by_bucket) {
                if other.map(|other| other.unix_ms) > known.map(|known| known.unix_ms) {
                    *known = *other;
                }
            }
        }
        newest.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(id: u8) -> ExchangeTrace {
        ExchangeTrace {
            plugin: "opentelemetry",
            trace_id: [id; 16],
            trace_id_bytes: 16,
            span_id: [1; 8],
            is_sampled: true,
            sets_variables: false,
        }
    }

    #[test]
    fn the_newest_request_of_each_bucket_counts() {
        let (one, other) = (ExemplarTable::default(), ExemplarTable::default());
        one.note(&trace(1), 100, 5);
        one.note(&trace(2), 90, 7);
        other.note(&trace(3), 1, 6);
        other.note(&trace(4), 101, 6);
        other.note(&trace(5), u64::MAX, 6);
        let newest: Vec<DurationExemplar> = ExemplarTable::newest([&one, &other].into_iter()).collect();
        let found: Vec<(String, u64)> =
            newest.iter().map(|exemplar| (exemplar.trace_id(), exemplar.duration_us)).collect();
        let id = |digit: &str| digit.repeat(16);
        assert_eq!(found, [(id("02"), 90), (id("04"), 101), (id("05"), u64::MAX)]);
    }
}
