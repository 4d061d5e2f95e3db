//! A connection's seat at a desk of its worker, for as long as an exchange lasts.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::connection::Connection;
use crate::desk::{Desk, Job, Tray};
use crate::disposition::After;
use crate::serve;

/// An exchange that is being served.
pub(crate) struct Seat(Desk);

impl Seat {
    /// Seats a connection.
    #[inline(always)]
    pub(crate) fn take(conn: Box<Connection>, job: Job) -> Seat {
        let desk = Desk::take().unwrap_or_else(|| Desk::new(attend));
        desk.ask(conn, job);
        Seat(desk)
    }

    /// Gives the connection back when the exchange is over.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Box<Connection>, After)> {
        self.0.poll(cx)
    }

    /// Gives the desk back.
    #[inline(always)]
    pub(crate) fn leave(self) {
        self.0.give();
    }
}

/// Does what lies in the tray, as long as there is a desk.
async fn attend(tray: Rc<Tray>) {
    loop {
        let (mut conn, job) = poll_fn(|_| tray.poll_next()).await;
        let after = match job {
            Job::Serve(head) => serve::exchange(&mut conn, head).await,
            Job::Refuse(kind, head) => serve::refuse(&mut conn, kind, head).await,
        };
        tray.put(conn, after);
    }
}

/// Serves one exchange, and gives the connection back.
pub(crate) async fn serve(conn: Box<Connection>, job: Job) -> (Box<Connection>, After) {
    let mut seat = Seat::take(conn, job);
    let (conn, after) = poll_fn(|cx| seat.poll(cx)).await;
    seat.leave();
    (conn, after)
}
