//! What each route, upstream, plugin or consumer is used for: a bounded table of one worker.
//!
//! Plain data: knows neither exchanges nor formats.

use std::collections::HashMap;

use super::durations::DurationHistogram;

/// Rows of one table. Where more are in use, the one unused longest makes room.
const ROWS_MAX: usize = 512;

/// What something was used for, scaled to all requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UsageTotals {
    /// Requests it took part in.
    pub(crate) requests: u64,
    /// Those answered 500 or above; of a plugin, those it answered so itself.
    pub(crate) errors: u64,
    /// Requests a plugin answered itself.
    pub(crate) answers: u64,
    /// Time a worker was busy with it.
    pub(crate) busy_ns: u64,
    /// Time it waited for others.
    pub(crate) wait_ns: u64,
    pub(crate) received_bytes: u64,
    pub(crate) sent_bytes: u64,
    /// How long it took.
    pub(crate) durations: DurationHistogram,
}

impl UsageTotals {
    /// Adds what another counted.
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

/// One of what the table is about.
#[derive(Debug, Clone, Default)]
pub(crate) struct UsageRow {
    /// What users call it beside its id; may be empty.
    pub(crate) name: Box<str>,
    pub(crate) usage: UsageTotals,
    /// When it was used last, in uses of the table.
    used: u64,
}

/// Rows by id.
#[derive(Debug, Default)]
pub(crate) struct UsageTable {
    pub(crate) rows: HashMap<Box<str>, UsageRow, foldhash::fast::RandomState>,
    /// Of the rows that made room, so that nothing is missing from the sum.
    pub(crate) rest: UsageTotals,
    uses: u64,
}

impl UsageTable {
    /// The usage of `id`, which may push out another.
    pub(crate) fn at(&mut self, id: &str, name: &str) -> &mut UsageTotals {
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

    /// Adds what another worker counted; this is the reader's, and as large as all workers' together.
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
