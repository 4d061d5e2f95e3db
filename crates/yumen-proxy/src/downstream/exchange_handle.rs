//! Handle of a running exchange: an exchange task on loan to one connection.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::downstream::exchange_task::{ExchangeJob, ExchangeTask, TaskMailbox};
use crate::exchange::connection::DownstreamConnection;
use crate::exchange::disposition::After;
use crate::exchange::serve;

/// An exchange in progress.
pub(crate) struct ExchangeHandle(ExchangeTask);

impl ExchangeHandle {
    /// Takes a task from the pool, or creates one, and submits the job.
    #[inline(always)]
    pub(crate) fn take(conn: Box<DownstreamConnection>, job: ExchangeJob) -> ExchangeHandle {
        let task = ExchangeTask::take().unwrap_or_else(|| ExchangeTask::new(run_jobs));
        task.submit(conn, job);
        ExchangeHandle(task)
    }

    /// Ready with the connection when the exchange has ended.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Box<DownstreamConnection>, After)> {
        self.0.poll(cx)
    }

    /// Returns the task to the pool.
    #[inline(always)]
    pub(crate) fn leave(self) {
        self.0.give();
    }
}

/// Endless loop of a task. The state of each exchange is part of this future, so its memory is reused.
async fn run_jobs(mailbox: Rc<TaskMailbox>) {
    loop {
        let (mut conn, job) = poll_fn(|_| mailbox.poll_next()).await;
        let after = match job {
            ExchangeJob::Serve(head) => serve::exchange(&mut conn, head).await,
            ExchangeJob::Refuse(kind, head) => serve::refuse(&mut conn, kind, head).await,
        };
        mailbox.put(conn, after);
    }
}

/// Serves one exchange; returns the connection and its continuation.
pub(crate) async fn serve(
    conn: Box<DownstreamConnection>,
    job: ExchangeJob,
) -> (Box<DownstreamConnection>, After) {
    let mut handle = ExchangeHandle::take(conn, job);
    let (conn, after) = poll_fn(|cx| handle.poll(cx)).await;
    handle.leave();
    (conn, after)
}
