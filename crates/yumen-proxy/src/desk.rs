//! Where exchanges are served: room for all that one needs, kept by the worker from one exchange to the next.
//!
//! A connection that idles holds none of it, and a new connection does not begin by making it. Knows nothing of
//! what is served, nor by whom.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use yumen_http::RequestHead;

use crate::connection::Connection;
use crate::disposition::After;
use crate::fault::Kind;
use crate::settings::EXCHANGES_KEPT;

thread_local! {
    /// Free desks of the worker that runs on this thread. They are no field of the worker, which must not know what a
    /// connection is.
    static FREE: RefCell<Vec<Desk>> = const { RefCell::new(Vec::new()) };
}

/// What is to be done for a connection.
pub(crate) enum Job {
    /// Serve this request.
    Serve(Box<RequestHead>),
    /// Answer what came in place of one, with what is known of it where it is not among the bytes.
    Refuse(Kind, Option<Box<RequestHead>>),
}

/// One exchange at a time.
pub(crate) struct Desk {
    tray: Rc<Tray>,
    /// Takes what is to be done from the tray and puts the connection back, again and again.
    clerk: Pin<Box<dyn Future<Output = ()>>>,
}

/// What goes between a desk and whoever has something for it.
#[derive(Default)]
pub(crate) struct Tray {
    asked: Cell<Option<(Box<Connection>, Job)>>,
    done: Cell<Option<(Box<Connection>, After)>>,
}

impl Tray {
    /// What is to be done next.
    #[inline(always)]
    pub(crate) fn poll_next(&self) -> Poll<(Box<Connection>, Job)> {
        self.asked.take().map_or(Poll::Pending, Poll::Ready)
    }

    /// Puts a connection back.
    #[inline(always)]
    pub(crate) fn put(&self, conn: Box<Connection>, after: After) {
        self.done.set(Some((conn, after)));
    }
}

impl Desk {
    /// A free desk, if the thread keeps one.
    #[inline(always)]
    pub(crate) fn take() -> Option<Desk> {
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
    pub(crate) fn new<F: Future<Output = ()> + 'static>(attend: impl FnOnce(Rc<Tray>) -> F) -> Desk {
        let tray = Rc::<Tray>::default();
        Desk { clerk: Box::pin(attend(tray.clone())), tray }
    }

    /// Puts a connection there with what is to be done for it.
    #[inline(always)]
    pub(crate) fn ask(&self, conn: Box<Connection>, job: Job) {
        self.tray.asked.set(Some((conn, job)));
    }

    /// Gives the connection back when that is done.
    #[inline(always)]
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Box<Connection>, After)> {
        // It has no end.
        let _ = self.clerk.as_mut().poll(cx);
        self.tray.done.take().map_or(Poll::Pending, Poll::Ready)
    }
}
