//! The services of a worker for plugins: timers, random numbers, clock, Redis, offloading, subrequests.

mod subrequest_task;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use yumen_base::Now;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{
    DirectoryQuery, DirectoryResult, DirectoryTarget, Offload, OffloadJob, PluginHost, SharedOutbound,
    SinkHandle, SubrequestFault, SubrequestResponse, SubrequestSpec, TapBudget,
};

use crate::observe::log_suppression::{SuppressionKey, should_log};
use crate::observe::sink_buffers;
use crate::runtime::clock;
use crate::worker::Worker;

/// Sends a subrequest of the proxy itself; `None` without a response.
pub(crate) async fn request_page(worker: &Worker, subrequest: SubrequestSpec) -> Option<SubrequestResponse> {
    subrequest_task::run(worker.shared()?, subrequest).await.ok()
}

impl PluginHost for Worker {
    fn sleep(&self, delay: Duration) -> LocalFuture<'static, ()> {
        Box::pin(self.timers.clone().sleep(delay.as_millis() as u64))
    }

    fn random(&self) -> u64 {
        Worker::random(self)
    }

    fn fill_random(&self, out: &mut [u8]) {
        // The generator of AWS-LC fails only if the system has no entropy source, which ends TLS as well.
        aws_lc_rs::rand::fill(out).expect("the system has a source of entropy");
    }

    fn worker(&self) -> usize {
        self.id
    }

    fn clock(&self) -> Now {
        // Plugins measure durations, for which the cached time is too coarse.
        clock::exact()
    }

    fn outbound(&self) -> Option<SharedOutbound> {
        Some(self.plugin_services.redis.clone())
    }

    fn offload(&self, bytes: usize, job: OffloadJob) -> Offload {
        let offloaded = self.plugin_services.offload_queue.submit(bytes, job);
        match offloaded {
            Offload::Refused => self.counters.runtime.offload_refused.add(1),
            _ => self.counters.runtime.offloaded.add(1),
        }
        offloaded
    }

    fn report_undecided(&self, plugin: &'static str, owner: &str, reason: &'static str) {
        // The failure belongs to no address.
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        if let Some(suppressed) = should_log(nowhere, SuppressionKey::Undecided(plugin)) {
            tracing::warn!(
                plugin,
                object = owner,
                reason,
                suppressed,
                "plugin cannot decide about a request"
            );
        }
    }

    fn send_subrequest(
        &self,
        subrequest: SubrequestSpec,
    ) -> Option<LocalFuture<'static, Result<SubrequestResponse, SubrequestFault>>> {
        Some(Box::pin(subrequest_task::run(self.shared()?, subrequest)))
    }

    fn ask_directory(
        &self,
        target: &Arc<DirectoryTarget>,
        query: DirectoryQuery,
    ) -> Option<LocalFuture<'static, DirectoryResult>> {
        Some(self.settings.directories.service()?.ask(target.clone(), query))
    }

    fn tap_budget(&self) -> TapBudget {
        self.plugin_services.tap_budget.clone()
    }

    fn append_entry(&self, sink: &SinkHandle, render: &mut dyn FnMut(&mut Vec<u8>)) {
        if self.plugin_services.sinks.append(sink, render)
            && let Some(worker) = self.shared()
        {
            tokio::task::spawn_local(async move {
                worker.timers.clone().sleep(sink_buffers::FLUSH_AFTER_MS).await;
                worker.plugin_services.sinks.flush();
            });
        }
    }
}
