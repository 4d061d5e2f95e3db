//! State machine of one discovered service: a failing source, or an empty result, does not remove endpoints
//! at once.
//!
//! Performs no I/O: results and the time are inputs, reports to the compiler are outputs.

use std::time::{Duration, Instant};

use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::DiscoveryResult;

/// Time to wait for a first result before saved endpoints are used.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// State of one service.
#[derive(Debug)]
pub(super) struct ServiceStanding {
    /// Active endpoints; `None` before the first result.
    nodes: Option<Vec<UpstreamNode>>,
    /// Saved endpoints, until a newer result arrives.
    remembered: Option<Vec<UpstreamNode>>,
    since: Instant,
    /// Time of the first empty result while the last endpoints stay in use.
    empty_since: Option<Instant>,
    error: Option<Box<str>>,
    last_answer: Option<Instant>,
    empty_hold: Duration,
}

impl ServiceStanding {
    pub(super) fn new(
        remembered: Option<Vec<UpstreamNode>>,
        empty_hold: Duration,
        now: Instant,
    ) -> ServiceStanding {
        ServiceStanding {
            nodes: None,
            remembered: remembered.filter(|nodes| !nodes.is_empty()),
            since: now,
            empty_since: None,
            error: None,
            last_answer: None,
            empty_hold,
        }
    }

    pub(super) fn nodes(&self) -> &[UpstreamNode] {
        self.nodes.as_deref().unwrap_or_default()
    }

    /// Active endpoints, or saved ones that will be used without a newer result.
    pub(super) fn last_known(&self) -> &[UpstreamNode] {
        self.nodes.as_deref().or(self.remembered.as_deref()).unwrap_or_default()
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    pub(super) fn last_answer(&self) -> Option<Instant> {
        self.last_answer
    }

    /// Takes a result of the source.
    pub(super) fn answered(&mut self, mut nodes: Vec<UpstreamNode>, now: Instant) -> Option<DiscoveryResult> {
        // Sources return nodes in any order; another order is no change.
        nodes.sort_by(|a, b| (&a.host, a.port, a.priority).cmp(&(&b.host, b.port, b.priority)));
        nodes.dedup();
        self.last_answer = Some(now);
        if !nodes.is_empty() {
            // A result with endpoints ends a pending removal.
            self.empty_since = None;
            return self.settle(nodes, None);
        }
        // Saved endpoints serve even if the first result is empty.
        self.use_saved();
        if self.nodes().is_empty() {
            return self.settle(nodes, Some("it has no endpoint".into()));
        }
        // The hold runs from the first of several empty results.
        self.empty_since.get_or_insert(now);
        if self.due().is_some_and(|due| due <= now) {
            return self.lapse(now);
        }
        let (count, hold) = (self.nodes().len(), self.empty_hold.as_secs_f64());
        self.keep(format!("it has no endpoint any more; the last {count} stay in use for {hold} s"))
    }

    /// Takes a failure of the source. It cancels a pending removal: an empty result before it may have been
    /// part of the failure, so the source has to confirm it.
    pub(super) fn failed(&mut self, error: &str) -> Option<DiscoveryResult> {
        self.empty_since = None;
        self.use_saved();
        match self.nodes().len() {
            0 => self.keep(error.to_owned()),
            count => self.keep(format!("{error}; the last {count} endpoints stay in use")),
        }
    }

    /// Time of the next state change without a result.
    pub(super) fn due(&self) -> Option<Instant> {
        let remembers = self.nodes.is_none() && self.remembered.is_some();
        match self.empty_since {
            Some(since) => Some(since + self.empty_hold),
            None => remembers.then(|| self.since + FIRST_ANSWER),
        }
    }

    /// Performs the state change that is due.
    pub(super) fn lapse(&mut self, now: Instant) -> Option<DiscoveryResult> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        if self.empty_since.take().is_some() {
            return self.settle(Vec::new(), Some("it has no endpoint".into()));
        }
        self.failed("it has not answered yet")
    }

    fn use_saved(&mut self) {
        if self.nodes.is_none() {
            self.nodes = self.remembered.take();
        }
    }

    fn settle(&mut self, nodes: Vec<UpstreamNode>, error: Option<String>) -> Option<DiscoveryResult> {
        let error = error.map(String::into_boxed_str);
        // Neither nodes nor trouble changed: nothing to compile.
        if self.nodes.as_ref() == Some(&nodes) && self.error == error {
            return None;
        }
        self.nodes = Some(nodes);
        self.error = error;
        Some(self.found())
    }

    fn keep(&mut self, error: String) -> Option<DiscoveryResult> {
        let error = Some(error.into_boxed_str());
        if self.error == error {
            return None;
        }
        self.error = error;
        Some(self.found())
    }

    fn found(&self) -> DiscoveryResult {
        DiscoveryResult { nodes: self.nodes.clone(), error: self.error.clone() }
    }
}

#[cfg(test)]
mod tests;
