//! Differences between a log and the translation.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::access_log_line::LoggedRequest;

/// Differences that are listed one by one.
const LISTED_MAX: usize = 20;

/// A request that the translation serves in another way.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReplayDifference {
    /// `route`, `status`, `Location`, or `explained` if the request has no explanation.
    part: String,
    method: String,
    /// The URL without its query.
    url: String,
    logged: String,
    found: String,
}

impl ReplayDifference {
    pub(super) fn new(
        request: &LoggedRequest,
        url: &str,
        part: &str,
        logged: &str,
        found: &str,
    ) -> ReplayDifference {
        ReplayDifference {
            part: part.to_owned(),
            method: request.method.clone(),
            url: url.split('?').next().unwrap_or_default().to_owned(),
            logged: logged.to_owned(),
            found: found.to_owned(),
        }
    }
}

/// The comparison of all requests of a log.
#[derive(Debug, Default)]
pub(super) struct ReplayReport {
    pub(super) same: u64,
    /// Requests of services that no Ingress names.
    pub(super) unknown: u64,
    unread: u64,
    first_unread: Option<String>,
    differences: BTreeMap<ReplayDifference, u64>,
}

impl ReplayReport {
    pub(super) fn add(&mut self, difference: ReplayDifference) {
        *self.differences.entry(difference).or_default() += 1;
    }

    pub(super) fn add_unread(&mut self, line: &str) {
        self.unread += 1;
        self.first_unread.get_or_insert_with(|| line.chars().take(120).collect());
    }

    pub(super) fn differs(&self) -> bool {
        !self.differences.is_empty()
    }

    fn different(&self) -> u64 {
        self.differences.values().sum()
    }

    pub(super) fn write_text(&self, text: &mut String) -> std::fmt::Result {
        let (same, different) = (self.same, self.different());
        writeln!(
            text,
            "\nReplay: {} requests, {same} same, {different} different",
            same + different + self.unknown
        )?;
        let mut listed: Vec<_> = self.differences.iter().collect();
        listed.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        for (one, count) in listed.iter().take(LISTED_MAX) {
            let ReplayDifference { part, method, url, logged, found } = one;
            writeln!(text, "  {count} x {method} {url}: {part} {found}, logged {logged}")?;
        }
        if let Some(more) = listed.len().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
            writeln!(text, "  and {more} more; --json lists all")?;
        }
        if self.unknown > 0 {
            writeln!(text, "  {} requests have no host, and a service that no Ingress names", self.unknown)?;
        }
        if let Some(line) = &self.first_unread {
            writeln!(text, "  {} lines have another format, the first one: {line}", self.unread)?;
        }
        Ok(())
    }

    pub(super) fn json(&self) -> Value {
        let differences: Vec<Value> = (self.differences.iter())
            .map(|(one, count)| {
                json!({
                    "part": one.part, "method": one.method, "url": one.url, "logged": one.logged,
                    "found": one.found, "count": count,
                })
            })
            .collect();
        json!({
            "same": self.same, "different": self.different(), "unknown": self.unknown, "unread": self.unread,
            "differences": differences,
        })
    }
}
