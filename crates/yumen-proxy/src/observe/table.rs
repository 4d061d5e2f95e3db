//! Usage of routes, upstreams, plugins or consumers: a bounded table of one worker.
//!
//! Plain data: this file must not know exchanges or formats.

use std::collections::HashMap;

use super::durations::DurationHistogram;

/// Maximum number of rows in one table; a new row then replaces the least recently used one.
const ROWS_MAX: usize = 512;

/// Usage of one object, scaled from samples to all requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UsageTotals {
    /// Requests in which the object took part.
    pub(crate) requests: u64,
    /// Responses with a 5xx status; of a plugin, only its own.
    pub(crate) errors: u64,
    /// Requests with a local response of a plugin.
    pub(crate) answers: u64,
    /// Time in which a worker ran, in nanoseconds.
    pub(crate) busy_ns: u64,
    /// Time spent waiting for an endpoint or a plugin's future, in nanoseconds.
    pub(crate) wait_ns: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// Distribution of the durations.
    pub(crate) durations: DurationHistogram,
}

impl UsageTotals {
    /// Adds the totals of another worker.
    pub(crate) fn merge(&mut self, other: &UsageTotals) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.answers += other.answers;
        self.busy_ns += other.busy_ns;
        self.wait_ns += other.wait_ns;
        self.received_bytes += other.received_bytes;
        self.sent_bytes += other.sent_bytes;
        self.durations.merge(&other.durations);
    }
}

/// The usage of one object.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageRow {
    /// Display name of the object; may be empty.
    pub(crate) name: Box<str>,
    pub(crate) usage: UsageTotals,
    /// Value of the table's use counter at the last use.
    used: u64,
}

/// Usage rows by id.
#[derive(Debug, Default)]
pub(crate) struct UsageTable {
    pub(crate) rows: HashMap<Box<str>, UsageRow, foldhash::fast::RandomState>,
    /// Totals of the removed rows, so that the sum stays complete.
    pub(crate) rest: UsageTotals,
    uses: u64,
}

impl UsageTable {
    /// Returns the usage of `id`; a new row may remove the least recently used one.
    pub(crate) fn at(&mut self, id: &str, name: &str) -> &mut UsageTotals {
        // `entry` requires an owned key, and nearly every id is known.
        if !self.rows.contains_key(id) {
            if self.rows.len() >= ROWS_MAX {
                self.make_room();
            }
            self.rows.insert(id.into(), UsageRow { name: name.into(), ..UsageRow::default() });
        }
        self.uses += 1;
        let row = self.rows.get_mut(id).expect("it was just put there");
        row.used = self.uses;
        if *row.name != *name {
            row.name = name.into();
        }
        &mut row.usage
    }

    fn make_room(&mut self) {
        let oldest = self.rows.iter().min_by_key(|(_, row)| row.used).map(|(id, _)| id.clone());
        if let Some(row) = oldest.and_then(|id| self.rows.remove(&id)) {
            self.rest.merge(&row.usage);
        }
    }

    /// Adds the table of another worker. The result belongs to the reader and is not bounded by `ROWS_MAX`.
    pub(crate) fn merge(&mut self, other: &UsageTable) {
        for (id, row) in &other.rows {
            let into = self.rows.entry(id.clone()).or_default();
            into.name.clone_from(&row.name);
            into.usage.merge(&row.usage);
        }
        self.rest.merge(&other.rest);
    }
}

#[cfg(test)]
mod tests;
