//! The host name and number of the process, for variables.
//!
//! Set once at the start, so that this crate makes no system call and conditions evaluate alike in traffic
//! and in simulations.

use std::sync::OnceLock;

static PROCESS: OnceLock<ProcessVars> = OnceLock::new();

/// The values of `$hostname` and `$pid`.
#[derive(Debug, Clone)]
pub struct ProcessVars {
    /// The host name; empty if unknown.
    pub hostname: Box<str>,
    /// The number of the process.
    pub pid: u32,
}

impl ProcessVars {
    /// Sets the values of this process. Only the first call has an effect.
    pub fn set_for_process(self) {
        let _ = PROCESS.set(self);
    }

    /// Values of this process, once they are set.
    pub(crate) fn current() -> Option<&'static ProcessVars> {
        PROCESS.get()
    }
}
