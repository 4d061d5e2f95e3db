//! What a worker is asked to do: serve, leave its sockets to another process, or end.
//!
//! Knows neither why nor who asks.

/// What a worker does with its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerDuty {
    /// Accepts and serves.
    Serve,
    /// Another process accepts from the same sockets. What is under way goes on, and idle connections are
    /// closed no earlier than otherwise: their clients may be about to ask. Clients are told to go elsewhere
    /// as soon as their protocol allows.
    HandOver {
        /// What is not over then is cut off, in milliseconds; 0 waits for all.
        within_ms: u64,
    },
    /// Nobody accepts any more. Idle connections are closed soon.
    End {
        /// What is not over then is cut off, in milliseconds.
        within_ms: u64,
    },
}

impl WorkerDuty {
    /// Whether the worker accepts no more connections.
    pub fn is_over(self) -> bool {
        self != WorkerDuty::Serve
    }

    /// How long what is under way may take, in milliseconds; `None` where that is not bounded.
    pub(crate) fn within_ms(self) -> Option<u64> {
        match self {
            WorkerDuty::Serve | WorkerDuty::HandOver { within_ms: 0 } => None,
            WorkerDuty::HandOver { within_ms } | WorkerDuty::End { within_ms } => Some(within_ms),
        }
    }
}
