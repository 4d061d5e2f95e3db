//! Where exchanges are served: room for all that one needs, kept by the worker from one exchange to the next.
//!
//! A connection that idles holds none of it, and a new connection does not begin by making it. Knows nothing of
//! what is served.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::RequestHead;

use crate::connection::{After, Connection};
use crate::fault::Kind;
use crate::serve;
use crate::worker::Worker;

/// How many desks a worker keeps. One that is in use costs what an exchange costs, wherever it is.
const KEPT: usize = 256;

/// What is to be done for a connection.
pub(crate) enum Job {
    /// Serve this request.
    Serve(Box<RequestHead>),
    /// Answer what came in place of one.
    Refuse(Kind),
}

/// One exchange at a time.
struct Desk {
    tray: Rc<Tray>,
    /// Takes what is to be done from the tray and puts the connection back, again and again.
    clerk: Pin<Box<dyn Future<Output = ()>>>,
}

#[derive(Default)]
struct Tray {
    asked: Cell<Option<(Box<Connection>, Job)>>,
    done: Cell<Option<(Box<Connection>, After)>>,
}

/// A worker's desks that are free.
#[derive(Default)]
pub(crate) struct Desks {
    free: RefCell<Vec<Desk>>,
}

impl Desks {
    #[inline(always)]
    fn take(&self) -> Desk {
        self.free.borrow_mut().pop().unwrap_or_else(Desk::new)
    }

    #[inline(always)]
    fn give(&self, desk: Desk) {
        let mut free = self.free.borrow_mut();
        if free.len() < KEPT {
            free.push(desk);
        }
    }
}

impl Desk {
    #[cold]
    fn new() -> Desk {
        let tray = Rc::<Tray>::default();
        Desk { clerk: Box::pin(attend(tray.clone())), tray }
    }
}

/// Does what lies in the tray, as long as there is a desk.
async fn attend(tray: Rc<Tray>) {
    loop {
        let (mut conn, job) = poll_fn(|_| tray.asked.take().map_or(Poll::Pending, Poll::Ready)).await;
        let after = match job {
            Job::Serve(head) => serve::exchange(&mut conn, head).await,
            Job::Refuse(kind) => serve::refuse(&mut conn, kind).await,
        };
        tray.done.set(Some((conn, after)));
    }
}

/// An exchange that is being served.
pub(crate) struct Seat(Desk);

impl Seat {
    /// Seats a connection at a desk of its worker.
    #[inline(always)]
    pub(crate) fn take(conn: Box<Connection>, job: Job) -> Seat {
        let desk = conn.worker.desks.take();
        desk.tray.asked.set(Some((conn, job)));
        Seat(desk)
    }

    /// Gives the connection back when the exchange is over.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Box<Connection>, After)> {
        // It has no end.
        let _ = self.0.clerk.as_mut().poll(cx);
        self.0.tray.done.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Gives the desk back.
    #[inline(always)]
    pub(crate) fn leave(self, worker: &Worker) {
        worker.desks.give(self.0);
    }
}

/// Serves one exchange, and gives the connection back.
pub(crate) async fn serve(conn: Box<Connection>, job: Job) -> (Box<Connection>, After) {
    let mut seat = Seat::take(conn, job);
    let (conn, after) = poll_fn(|cx| seat.poll(cx)).await;
    seat.leave(&conn.worker);
    (conn, after)
}
