//! A connection's seat at a desk of its worker, for as long as an exchange lasts.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::connection::DownstreamConnection;
use crate::disposition::After;
use crate::exchange_task::{ExchangeJob, ExchangeTask, TaskMailbox};
use crate::serve;

/// An exchange that is being served.
pub(crate) struct ExchangeHandle(ExchangeTask);

impl ExchangeHandle {
    /// Seats a connection.
    #[inline(always)]
    pub(crate) fn take(conn: Box<DownstreamConnection>, job: ExchangeJob) -> ExchangeHandle {
        let desk = ExchangeTask::take().unwrap_or_else(|| ExchangeTask::new(run_jobs));
        desk.ask(conn, job);
        ExchangeHandle(desk)
    }

    /// Gives the connection back when the exchange is over.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Box<DownstreamConnection>, After)> {
        self.0.poll(cx)
    }

    /// Gives the desk back.
    #[inline(always)]
    pub(crate) fn leave(self) {
        self.0.give();
    }
}

/// Does what lies in the tray, as long as there is a desk.
async fn run_jobs(tray: Rc<TaskMailbox>) {
    loop {
        let (mut conn, job) = poll_fn(|_| tray.poll_next()).await;
        let after = match job {
            ExchangeJob::Serve(head) => serve::exchange(&mut conn, head).await,
            ExchangeJob::Refuse(kind, head) => serve::refuse(&mut conn, kind, head).await,
        };
        tray.put(conn, after);
    }
}

/// Serves one exchange, and gives the connection back.
pub(crate) async fn serve(
    conn: Box<DownstreamConnection>,
    job: ExchangeJob,
) -> (Box<DownstreamConnection>, After) {
    let mut seat = ExchangeHandle::take(conn, job);
    let (conn, after) = poll_fn(|cx| seat.poll(cx)).await;
    seat.leave();
    (conn, after)
}
