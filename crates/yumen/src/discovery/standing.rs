//! What is in force of one service, and when that changes: a source that fails or says nothing empties
//! nothing.
//!
//! Neither asks nor waits: answers and the time come in, what the compiler shall know goes out.

use std::time::{Duration, Instant};

use yumen_config::resource::Node;
use yumen_snapshot::compile::Found;

/// How long a first answer may take before what is remembered of an earlier run is used.
const FIRST_ANSWER: Duration = Duration::from_secs(1);

/// One service over time.
#[derive(Debug)]
pub(super) struct Standing {
    /// What is in force, once anything is.
    nodes: Option<Vec<Node>>,
    /// What an earlier run knew, while nothing newer is.
    remembered: Option<Vec<Node>>,
    since: Instant,
    /// Since when the source says that there are none, while they are still in use.
    emptied: Option<Instant>,
    trouble: Option<Box<str>>,
    last_answer: Option<Instant>,
    empty_hold: Duration,
}

impl Standing {
    pub(super) fn new(remembered: Option<Vec<Node>>, empty_hold: Duration, now: Instant) -> Standing {
        Standing {
            nodes: None,
            remembered: remembered.filter(|nodes| !nodes.is_empty()),
            since: now,
            emptied: None,
            trouble: None,
            last_answer: None,
            empty_hold,
        }
    }

    /// The endpoints in use.
    pub(super) fn nodes(&self) -> &[Node] {
        self.nodes.as_deref().unwrap_or_default()
    }

    /// These, or those that will be where nothing newer is heard.
    pub(super) fn last_known(&self) -> &[Node] {
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
    pub(super) fn heard(&mut self, mut nodes: Vec<Node>, now: Instant) -> Option<Found> {
        nodes.sort_by(|a, b| (&a.host, a.port, a.priority).cmp(&(&b.host, b.port, b.priority)));
        nodes.dedup();
        self.last_answer = Some(now);
        if !nodes.is_empty() {
            self.emptied = None;
            return self.settle(nodes, None);
        }
        self.use_remembered();
        if self.nodes().is_empty() {
            return self.settle(nodes, Some("it has no endpoint".into()));
        }
        self.emptied.get_or_insert(now);
        if self.due().is_some_and(|due| due <= now) {
            return self.lapse(now);
        }
        let (count, hold) = (self.nodes().len(), self.empty_hold.as_secs_f64());
        self.keep(format!("it has no endpoint any more; the last {count} stay in use for {hold} s"))
    }

    /// The source could not be asked. Where it had said that there are no endpoints, that may have been its trouble
    /// already: it has to say so again.
    pub(super) fn failed(&mut self, error: &str) -> Option<Found> {
        self.emptied = None;
        self.use_remembered();
        match self.nodes().len() {
            0 => self.keep(error.to_owned()),
            count => self.keep(format!("{error}; the last {count} endpoints stay in use")),
        }
    }

    /// When something happens although nothing was heard.
    pub(super) fn due(&self) -> Option<Instant> {
        let remembers = self.nodes.is_none() && self.remembered.is_some();
        match self.emptied {
            Some(since) => Some(since + self.empty_hold),
            None => remembers.then(|| self.since + FIRST_ANSWER),
        }
    }

    /// That moment has come.
    pub(super) fn lapse(&mut self, now: Instant) -> Option<Found> {
        if self.due().is_none_or(|due| due > now) {
            return None;
        }
        if self.emptied.take().is_some() {
            return self.settle(Vec::new(), Some("it has no endpoint".into()));
        }
        self.failed("it has not answered yet")
    }

    fn use_remembered(&mut self) {
        if self.nodes.is_none() {
            self.nodes = self.remembered.take();
        }
    }

    fn settle(&mut self, nodes: Vec<Node>, trouble: Option<String>) -> Option<Found> {
        let trouble = trouble.map(String::into_boxed_str);
        if self.nodes.as_ref() == Some(&nodes) && self.trouble == trouble {
            return None;
        }
        self.nodes = Some(nodes);
        self.trouble = trouble;
        Some(self.found())
    }

    fn keep(&mut self, trouble: String) -> Option<Found> {
        let trouble = Some(trouble.into_boxed_str());
        if self.trouble == trouble {
            return None;
        }
        self.trouble = trouble;
        Some(self.found())
    }

    fn found(&self) -> Found {
        Found { nodes: self.nodes.clone(), trouble: self.trouble.clone() }
    }
}

#[cfg(test)]
mod tests;
