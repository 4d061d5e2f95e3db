//! What is in force of one service, and when that changes: a source that fails or says nothing empties
//! nothing.
//!
//! Neither asks nor waits: answers and the time come in, what the compiler shall know goes out.

use std::time::{Duration, Instant};

use yumen_config::resource::UpstreamNode;
use yumen_snapshot::compile::DiscoveryResult;

/// How long a first answer may take before what is remembered of an earlier run is used.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// One service over time.
#[derive(Debug)]
pub(super) struct ServiceStanding {
    /// What is in force, once anything is.
    nodes: Option<Vec<UpstreamNode>>,
    /// What an earlier run knew, while nothing newer is.
    remembered: Option<Vec<UpstreamNode>>,
    since: Instant,
    /// Since when the source says that there are none, while they are still in use.
    empty_since: Option<Instant>,
    trouble: Option<Box<str>>,
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
            trouble: None,
            last_answer: None,
            empty_hold,
        }
    }

    /// The endpoints in use.
    pub(super) fn nodes(&self) -> &[UpstreamNode] {
        self.nodes.as_deref().unwrap_or_default()
    }

    /// These, or those that will be where nothing newer is heard.
    pub(super) fn last_known(&self) -> &[UpstreamNode] {
        self.nodes.as_deref().or(self.remembered.as_deref()).unwrap_or_default()
    }

    pub(super) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// When the source answered last.
    pub(super) fn last_answer(&self) -> Option<Instant> {
        self.last_answer
    }

    /// The source has answered.
    pub(super) fn heard(&mut self, mut nodes: Vec<UpstreamNode>, now: Instant) -> Option<DiscoveryResult> {
        nodes.sort_by(|a, b| (&a.host, a.port, a.priority).cmp(&(&b.host, b.port, b.priority)));
        nodes.dedup();
        self.last_answer = Some(now);
        if !nodes.is_empty() {
            self.empty_since = None;
            return self.settle(nodes, None);
        }
        self.use_saved();
        if self.nodes().is_empty() {
            return self.settle(nodes, Some("it has no endpoint".into()));
        }
        self.empty_since.get_or_insert(now);
        if self.due().is_some_and(|due| due <= now) {
            return self.lapse(now);
        }
        let (count, hold) = (self.nodes().len(), self.empty_hold.as_secs_f64());
        self.keep(format!("it has no endpoint any more; the last {count} stay in use for {hold} s"))
    }

    /// The source could not be asked. Where it had said that there are no endpoints, that may have been its trouble
    /// already: it has to say so again.
    pub(super) fn failed(&mut self, error: &str) -> Option<DiscoveryResult> {
        self.empty_since = None;
        self.use_saved();
        match self.nodes().len() {
            0 => self.keep(error.to_owned()),
            count => self.keep(format!("{error}; the last {count} endpoints stay in use")),
        }
    }

    /// When something happens although nothing was heard.
    pub(super) fn due(&self) -> Option<Instant> {
        let remembers = self.nodes.is_none() && self.remembered.is_some();
        match self.empty_since {
            Some(since) => Some(since + self.empty_hold),
            None => remembers.then(|| self.since + FIRST_ANSWER),
        }
    }

    /// That moment has come.
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

    fn settle(&mut self, nodes: Vec<UpstreamNode>, trouble: Option<String>) -> Option<DiscoveryResult> {
        let trouble = trouble.map(String::into_boxed_str);
        if self.nodes.as_ref() == Some(&nodes) && self.trouble == trouble {
            return None;
        }
        self.nodes = Some(nodes);
        self.trouble = trouble;
        Some(self.found())
    }

    fn keep(&mut self, trouble: String) -> Option<DiscoveryResult> {
        let trouble = Some(trouble.into_boxed_str());
        if self.trouble == trouble {
            return None;
        }
        self.trouble = trouble;
        Some(self.found())
    }

    fn found(&self) -> DiscoveryResult {
        DiscoveryResult { nodes: self.nodes.clone(), trouble: self.trouble.clone() }
    }
}

#[cfg(test)]
mod tests;
