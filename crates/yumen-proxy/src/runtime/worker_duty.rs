//! The duty of a worker: serve, hand its sockets over, or end.
//!
//! Independent of the source of the duty.

/// The treatment of new and open connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerDuty {
    /// The worker accepts and serves.
    Serve,
    /// The successor accepts from the same sockets. Exchanges in flight continue, and idle connections keep
    /// their idle timeout, as their clients may be about to send. Clients are asked to reconnect as soon as
    /// their protocol allows.
    HandOver {
        /// Time after which connections are cut off, in milliseconds; 0 sets no limit.
        within_ms: u64,
    },
    /// No process accepts any more. Idle connections are closed soon.
    End {
        /// Time after which connections are cut off, in milliseconds.
        within_ms: u64,
    },
}

impl WorkerDuty {
    /// Whether the worker has stopped accepting connections.
    pub fn is_over(self) -> bool {
        self != WorkerDuty::Serve
    }

    /// Time for which exchanges in flight may continue, in milliseconds; `None` for no limit.
    pub(crate) fn within_ms(self) -> Option<u64> {
        match self {
            WorkerDuty::Serve | WorkerDuty::HandOver { within_ms: 0 } => None,
            WorkerDuty::HandOver { within_ms } | WorkerDuty::End { within_ms } => Some(within_ms),
        }
    }
}
