//! The process that serves, as variables name it.
//!
//! Told once by whoever starts it: here nobody asks the system. It is the same for all who evaluate variables, so
//! that a condition holds alike where requests are served and where they are only thought through.

use std::sync::OnceLock;

static PROCESS: OnceLock<ProcessVars> = OnceLock::new();

/// What `$hostname` and `$pid` are.
#[derive(Debug, Clone)]
pub struct ProcessVars {
    /// The host's name; empty where it has none.
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
