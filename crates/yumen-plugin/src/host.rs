//! Services of the worker that plugins reach through an exchange: time, waiting, randomness, subrequests.

use std::sync::Arc;
use std::time::Duration;

use yumen_base::Now;

use crate::plugin::LocalFuture;
use crate::{
    DirectoryQuery, DirectoryResult, DirectoryTarget, FetchedCell, Offload, OffloadJob, SharedOutbound,
    SinkHandle, SubrequestFault, SubrequestResponse, SubrequestSpec, TapBudget,
};

/// Services of the worker that runs a plugin. A plugin has no other source of time, waiting or randomness.
pub trait PluginHost {
    /// Returns a future that completes after `delay`.
    fn sleep(&self, delay: Duration) -> LocalFuture<'static, ()>;
    /// Returns a random number; not for secrets.
    fn random(&self) -> u64;
    /// Fills `out` with random bytes that are fit for secrets. A dry run and tests have predictable ones.
    fn fill_random(&self, out: &mut [u8]);
    /// The number of the worker, counted from 0.
    fn worker(&self) -> usize;
    /// The current time, for plugins that measure durations; others use [`Exchange::now`](crate::Exchange::now).
    fn clock(&self) -> Now;
    /// Connections to servers other than upstreams; `None` in a dry run.
    fn outbound(&self) -> Option<SharedOutbound> {
        None
    }
    /// Runs a job on that number of bytes in another thread, if the host has one. Called through
    /// [`compute`](crate::compute).
    fn offload(&self, _bytes: usize, job: OffloadJob) -> Offload {
        Offload::Inline(job)
    }
    /// Reports that a plugin of the object `owner` could not decide about a request. Repetitions are suppressed.
    fn report_undecided(&self, _plugin: &'static str, _owner: &str, _reason: &'static str) {}
    /// Sends a subrequest to an upstream; `None` in a dry run.
    fn send_subrequest(
        &self,
        _subrequest: SubrequestSpec,
    ) -> Option<LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>>> {
        None
    }
    /// Asks a directory; `None` in a dry run.
    fn ask_directory(
        &self,
        _target: &Arc<DirectoryTarget>,
        _query: DirectoryQuery,
    ) -> Option<LocalFuture<'static, DirectoryResult>> {
        None
    }
    /// The limit of tapped bodies that the exchanges of the worker share.
    fn tap_budget(&self) -> TapBudget {
        TapBudget::default()
    }
    /// Appends an entry to the sink: `render` writes it at the end of the buffer. It is not called if the sink is full,
    /// nor in a dry run.
    fn append_entry(&self, _sink: &SinkHandle, _render: &mut dyn FnMut(&mut Vec<u8>)) {}
}

/// Interval at which [`FetchedCell::wait_newer`] looks for a new value.
const POLL_MS: u64 = 20;

impl FetchedCell {
    /// Resolves to true with a generation after `than`, or to false after `timeout_ms`.
    pub fn wait_newer<'a>(
        &'a self,
        host: &'a dyn PluginHost,
        than: u64,
        timeout_ms: u64,
    ) -> LocalFuture<'a, bool> {
        Box::pin(async move {
            let mut waited_ms = 0;
            // Polled, so that no waker crosses threads.
            while self.generation() <= than {
                if waited_ms >= timeout_ms {
                    return false;
                }
                host.sleep(Duration::from_millis(POLL_MS)).await;
                waited_ms += POLL_MS;
            }
            true
        })
    }
}
