//! Where exchanges are served: room for all that one needs, kept by the worker from one exchange to the next.
//!
//! A connection that idles holds none of it, and a new connection does not begin by making it. Knows nothing of
//! what is served, nor by whom.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::RequestHead;

use crate::connection::DownstreamConnection;
use crate::disposition::After;
use crate::fault::FaultKind;
use crate::settings::EXCHANGES_KEPT;

thread_local! {
    /// Free desks of the worker that runs on this thread. They are no field of the worker, which must not know what a
    /// connection is.
    static FREE: RefCell<Vec<ExchangeTask>> = const { RefCell::new(Vec::new()) };
}

/// What is to be done for a connection.
pub(crate) enum ExchangeJob {
    /// Serve this request.
    Serve(Box<RequestHead>),
    /// Answer what came in place of one, with what is known of it where it is not among the bytes.
    Refuse(FaultKind, Option<Box<RequestHead>>),
}

/// One exchange at a time.
pub(crate) struct ExchangeTask {
    tray: Rc<TaskMailbox>,
    /// Takes what is to be done from the tray and puts the connection back, again and again.
    clerk: Pin<Box<dyn Future<Output = ()>>>,
}

/// What goes between a desk and whoever has something for it.
#[derive(Default)]
pub(crate) struct TaskMailbox {
    asked: Cell<Option<(Box<DownstreamConnection>, ExchangeJob)>>,
    done: Cell<Option<(Box<DownstreamConnection>, After)>>,
}

impl TaskMailbox {
    /// What is to be done next.
    #[inline(always)]
    pub(crate) fn poll_next(&self) -> Poll<(Box<DownstreamConnection>, ExchangeJob)> {
        self.asked.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Puts a connection back.
    #[inline(always)]
    pub(crate) fn put(&self, conn: Box<DownstreamConnection>, after: After) {
        self.done.set(Some((conn, after)));
    }
}

impl ExchangeTask {
    /// A free desk, if the thread keeps one.
    #[inline(always)]
    pub(crate) fn take() -> Option<ExchangeTask> {
        FREE.with_borrow_mut(Vec::pop)
    }

    /// Keeps the desk for the next exchange.
    #[inline(always)]
    pub(crate) fn give(self) {
        FREE.with_borrow_mut(|free| {
            if free.len() < EXCHANGES_KEPT {
                free.push(self);
            }
        });
    }

    /// A desk with whoever attends to its tray.
    #[cold]
    pub(crate) fn new<F: Future<Output = ()> + 'static>(
        run_jobs: impl FnOnce(Rc<TaskMailbox>) -> F,
    ) -> ExchangeTask {
        let tray = Rc::<TaskMailbox>::default();
        ExchangeTask { clerk: Box::pin(run_jobs(tray.clone())), tray }
    }

    /// Puts a connection there with what is to be done for it.
    #[inline(always)]
    pub(crate) fn ask(&self, conn: Box<DownstreamConnection>, job: ExchangeJob) {
        self.tray.asked.set(Some((conn, job)));
    }

    /// Gives the connection back when that is done.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Box<DownstreamConnection>, After)> {
        // It has no end.
        let _ = self.clerk.as_mut().poll(cx);
        self.tray.done.take().map_or(Poll::Pending, Poll::Ready)
    }
}
