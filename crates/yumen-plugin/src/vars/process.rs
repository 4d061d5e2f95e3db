//! The process, for the variables `$hostname` and `$pid`.
//!
//! Set once at start-up. All evaluations use the same values, so that `explain` agrees with the data plane.

use std::sync::OnceLock;

static PROCESS: OnceLock<ProcessVars> = OnceLock::new();

/// The values of `$hostname` and `$pid`.
#[derive(Debug, Clone)]
pub struct ProcessVars {
    /// The host name; empty without one.
    pub hostname: Box<str>,
    /// The process id.
    pub pid: u32,
}

impl ProcessVars {
    /// Sets the values of this process. Only the first call has an effect.
    pub fn set_for_process(self) {
        let _ = PROCESS.set(self);
    }

    /// Values of this process, once they are set.
    pub fn current() -> Option<&'static ProcessVars> {
        PROCESS.get()
    }
}
