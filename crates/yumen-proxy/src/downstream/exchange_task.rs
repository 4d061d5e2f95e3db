//! Exchange tasks and their pool. The worker reuses tasks, so an idle connection holds no exchange state and
//! a new connection allocates none.
//!
//! Must not depend on the serving of an exchange or on its protocol.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::RequestHead;

use crate::exchange::connection::DownstreamConnection;
use crate::exchange::disposition::After;
use crate::fault::FaultKind;
use crate::settings::EXCHANGES_KEPT;

thread_local! {
    /// Free tasks of the worker on this thread. A thread-local and not a field of `Worker`, which must not
    /// depend on the connection type.
    static FREE: RefCell<Vec<ExchangeTask>> = const { RefCell::new(Vec::new()) };
}

/// Work of an exchange task.
pub(crate) enum ExchangeJob {
    /// Serve this request.
    Serve(Box<RequestHead>),
    /// Send a local response for a fault. The head is given where the connection's inbox does not contain it.
    Refuse(FaultKind, Option<Box<RequestHead>>),
}

/// A reusable future that serves one exchange at a time.
pub(crate) struct ExchangeTask {
    mailbox: Rc<TaskMailbox>,
    /// Endless loop: takes a job from the mailbox, serves it, puts the connection back.
    job_loop: Pin<Box<dyn Future<Output = ()>>>,
}

/// Handover of connections between an exchange task and its caller.
#[derive(Default)]
pub(crate) struct TaskMailbox {
    submitted: Cell<Option<(Box<DownstreamConnection>, ExchangeJob)>>,
    done: Cell<Option<(Box<DownstreamConnection>, After)>>,
}

impl TaskMailbox {
    /// Takes the next job. Registers no waker: the caller polls the task after each [`ExchangeTask::submit`].
    #[inline(always)]
    pub(crate) fn poll_next(&self) -> Poll<(Box<DownstreamConnection>, ExchangeJob)> {
        self.submitted.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Returns a connection with its continuation.
    #[inline(always)]
    pub(crate) fn put(&self, conn: Box<DownstreamConnection>, after: After) {
        self.done.set(Some((conn, after)));
    }
}

impl ExchangeTask {
    /// Takes a free task of this thread.
    #[inline(always)]
    pub(crate) fn take() -> Option<ExchangeTask> {
        FREE.with_borrow_mut(Vec::pop)
    }

    /// Returns the task to the pool, which retains at most [`EXCHANGES_KEPT`].
    #[inline(always)]
    pub(crate) fn give(self) {
        FREE.with_borrow_mut(|free| {
            if free.len() < EXCHANGES_KEPT {
                free.push(self);
            }
        });
    }

    /// Creates a task from the loop that `run_jobs` builds on its mailbox.
    #[cold]
    pub(crate) fn new<F: Future<Output = ()> + 'static>(
        run_jobs: impl FnOnce(Rc<TaskMailbox>) -> F,
    ) -> ExchangeTask {
        let mailbox = Rc::<TaskMailbox>::default();
        ExchangeTask { job_loop: Box::pin(run_jobs(mailbox.clone())), mailbox }
    }

    /// Submits a job. The task holds one at a time.
    #[inline(always)]
    pub(crate) fn submit(&self, conn: Box<DownstreamConnection>, job: ExchangeJob) {
        self.mailbox.submitted.set(Some((conn, job)));
    }

    /// Drives the task; ready with the connection when the job is done.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Box<DownstreamConnection>, After)> {
        // The loop never completes, so the result carries no information.
        let _ = self.job_loop.as_mut().poll(cx);
        self.mailbox.done.take().map_or(Poll::Pending, Poll::Ready)
    }
}
