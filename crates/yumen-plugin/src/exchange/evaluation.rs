//! State of an exchange that the evaluation of variables, conditions and patterns shares.

use std::cell::{Cell, OnceCell};

use crate::{BacktrackBudget, BacktrackLimitExceeded};

/// State that variables, conditions and patterns leave in an exchange while it is borrowed shared.
#[derive(Debug, Default)]
pub(crate) struct EvaluationState {
    /// Bytes that patterns with backtracking may still read.
    pub(super) budget: BacktrackBudget,
    indecision: Cell<Option<IndecisionCause>>,
    /// Whether `$server_port` was read, so that the result may depend on the listener.
    has_read_port: Cell<bool>,
    /// The value of `$request_id` without the request field; drawn at the first read.
    request_id: OnceCell<[u64; 2]>,
}

/// The reason why a condition has neither held nor failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndecisionCause {
    /// A pattern exceeded the backtracking limit.
    BacktrackLimit,
    /// The request body is malformed or ambiguous: readers of its type disagree on its values.
    UnreadableBody,
}

impl EvaluationState {
    pub(super) fn indecision(&self) -> Option<IndecisionCause> {
        self.indecision.get()
    }

    /// Returns the result of a match. An aborted match counts as none and leaves the exchange undecided.
    pub(super) fn settle<T: Default>(&self, result: Result<T, BacktrackLimitExceeded>) -> T {
        result.unwrap_or_else(|BacktrackLimitExceeded| {
            // An unreadable body is the fault of the client, so it stays the cause.
            if self.indecision.get().is_none() {
                self.indecision.set(Some(IndecisionCause::BacktrackLimit));
            }
            T::default()
        })
    }

    pub(super) fn note_unreadable_body(&self) {
        self.indecision.set(Some(IndecisionCause::UnreadableBody));
    }

    pub(super) fn note_port_read(&self) {
        self.has_read_port.set(true);
    }

    pub(super) fn has_read_port(&self) -> bool {
        self.has_read_port.get()
    }

    pub(super) fn request_id(&self, draw: impl FnOnce() -> [u64; 2]) -> [u64; 2] {
        *self.request_id.get_or_init(draw)
    }

    /// A copy of budget and indecision, to undo an evaluation that decides nothing.
    pub(super) fn checkpoint(&self) -> EvaluationCheckpoint {
        EvaluationCheckpoint { budget: self.budget.clone(), indecision: self.indecision.get() }
    }

    pub(super) fn restore(&mut self, checkpoint: EvaluationCheckpoint) {
        self.budget = checkpoint.budget;
        self.indecision.set(checkpoint.indecision);
    }
}

/// Budget and indecision of an exchange at one moment.
pub(super) struct EvaluationCheckpoint {
    budget: BacktrackBudget,
    indecision: Option<IndecisionCause>,
}
