//! Tasks that serve one stream after another: making one for every stream, and moving all an exchange needs into
//! it, costs more than handing over a stream.
//!
//! Knows when a stream is to be served, and nothing of how.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::accept::{self, Accepted};
use crate::task;

/// Tasks that may idle; each holds a few kilobytes.
const IDLE_MAX: usize = 64;

/// A worker's tasks that wait for a stream.
#[derive(Default)]
pub(crate) struct Crew {
    idle: RefCell<Vec<Rc<Hand>>>,
}

/// Where an idle task gets its next stream from.
#[derive(Default)]
struct Hand {
    next: RefCell<Option<Accepted>>,
    is_dismissed: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Crew {
    /// Has a stream served.
    pub(super) fn serve(&self, accepted: Accepted) {
        let Some(hand) = self.idle.borrow_mut().pop() else { return task::spawn(work(accepted)) };
        hand.next.replace(Some(accepted));
        hand.wake();
    }

    /// Ends the tasks that idle; says how many there were.
    pub(crate) fn dismiss(&self) -> usize {
        let idle = self.idle.take();
        for hand in &idle {
            hand.is_dismissed.set(true);
            hand.wake();
        }
        idle.len()
    }

    /// Whether this one may wait for another stream.
    fn keep(&self, hand: &Rc<Hand>) -> bool {
        let mut idle = self.idle.borrow_mut();
        let is_kept = idle.len() < IDLE_MAX;
        if is_kept {
            idle.push(hand.clone());
        }
        is_kept
    }
}

impl Hand {
    fn wake(&self) {
        self.waker.borrow().as_ref().inspect(|waker| waker.wake_by_ref());
    }

    /// The next stream; `None` when there will be none.
    fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Option<Accepted>> {
        if let Some(accepted) = self.next.take() {
            return Poll::Ready(Some(accepted));
        }
        if self.is_dismissed.get() {
            return Poll::Ready(None);
        }
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

async fn work(first: Accepted) {
    let hand = Rc::new(Hand::default());
    let mut next = Some(first);
    while let Some(accepted) = next {
        let worker = accepted.worker().clone();
        accept::exchange(accepted).await;
        if !worker.crew.keep(&hand) {
            return;
        }
        // Who idles keeps no worker alive.
        drop(worker);
        next = poll_fn(|cx| hand.poll_next(cx)).await;
    }
}
