//! The process of a successor, until it serves.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use super::super::VARIABLE;
use super::super::channel::HandoverChannel;
use super::super::error::UpgradeError;
use crate::process;

/// Polls of the exit status of a failed successor, which may be about to exit by itself.
const EXIT_POLLS: usize = 20;
/// Pause between two polls.
const EXIT_POLL_EVERY: Duration = Duration::from_millis(10);

/// A started successor, with the channel to it.
pub(super) struct SuccessorProcess {
    child: Child,
    pub(super) channel: HandoverChannel,
}

impl SuccessorProcess {
    /// Starts the successor with one end of the channel as its standard input.
    pub(super) fn start(program: &Path) -> io::Result<SuccessorProcess> {
        let (local, remote) = UnixStream::pair()?;
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::from(OwnedFd::from(remote)))
            .env(VARIABLE, "stdin")
            // These variables describe the current process only.
            .env_remove("WATCHDOG_PID")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .spawn()?;
        Ok(SuccessorProcess { child, channel: HandoverChannel::new(local) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the successor run on: it serves.
    pub(super) fn into_channel(self) -> HandoverChannel {
        self.channel
    }

    /// Ends a failed successor. Adds the exit status to the error if the successor exited by itself.
    pub(super) fn end(mut self, error: UpgradeError) -> UpgradeError {
        match (self.exited_by_itself(), error) {
            (_, UpgradeError::Ending) => {
                self.kill();
                UpgradeError::Ending
            }
            (Some(status), error) => UpgradeError::Exited { error: Box::new(error), status },
            (None, error) => {
                self.kill();
                error
            }
        }
    }

    fn exited_by_itself(&mut self) -> Option<ExitStatus> {
        (0..EXIT_POLLS).find_map(|_| {
            let status = self.child.try_wait().ok().flatten();
            if status.is_none() {
                std::thread::sleep(EXIT_POLL_EVERY);
            }
            status
        })
    }

    fn kill(&mut self) {
        let started = process::descendants(self.child.id());
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Children of a wrapper hold the sockets too: connections would be queued there unaccepted, and the
        // ports would stay bound.
        started.into_iter().for_each(process::kill);
    }
}
