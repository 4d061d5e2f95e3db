//! Turns: the work that one task does before the worker serves other tasks.

use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::task::{coop, yield_now};

/// The bytes that one direction of a flow has moved in its turn. The other direction of the flow takes turns
/// as well.
#[derive(Debug, Default)]
pub(crate) struct TurnBudget {
    /// In units of copied bytes.
    moved: usize,
}

impl TurnBudget {
    /// Half of tokio's task budget when TLS is read, which takes a unit per 4 KiB: the other direction needs
    /// the rest.
    const COPIED_BYTES: usize = 256 * 1024;
    /// Spliced bytes cost a quarter of copied ones, edited bytes four times as much.
    const SPLICED_PER_COPIED: usize = 4;
    const COPIED_PER_EDITED: usize = 4;
    /// The fixed cost of a chunk: a write, and perhaps a plugin call.
    const PIECE_BYTES: usize = 1024;

    /// Charges copied bytes.
    #[inline]
    pub(crate) fn copied(&mut self, bytes: usize) {
        self.moved += bytes;
    }

    /// Charges spliced bytes.
    #[inline]
    pub(crate) fn spliced(&mut self, bytes: usize) {
        self.moved += bytes / TurnBudget::SPLICED_PER_COPIED;
    }

    /// Charges bytes that a plugin has edited.
    #[inline]
    pub(crate) fn edited(&mut self, bytes: usize) {
        self.moved += bytes * TurnBudget::COPIED_PER_EDITED;
    }

    /// Charges the fixed cost of a chunk.
    #[inline]
    pub(crate) fn piece(&mut self) {
        self.moved += TurnBudget::PIECE_BYTES;
    }

    /// Whether the turn has ended. If so, the task is polled again after other tasks and after the reactor.
    #[inline]
    pub(crate) fn is_over(&self, cx: &mut Context<'_>) -> bool {
        let is_over = self.moved >= TurnBudget::COPIED_BYTES;
        if is_over {
            yield_task(cx);
        }
        is_over
    }
}

/// Schedules the task behind all other ready tasks.
#[cold]
pub(crate) fn yield_task(cx: &mut Context<'_>) {
    // The first poll schedules the wake-up, and never returns ready.
    let _ = pin!(yield_now()).poll(cx);
}

/// The units of tokio's task budget that one pipelined request takes: 32 such requests exhaust the budget.
const REQUEST: u32 = 4;

/// Charges a pipelined request; pending if the budget is exhausted.
pub(crate) fn poll_request(cx: &mut Context<'_>) -> Poll<()> {
    for _ in 0..REQUEST {
        // Without `made_progress`, tokio returns the unit to the budget.
        ready!(coop::poll_proceed(cx)).made_progress();
    }
    Poll::Ready(())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::rc::Rc;

    use super::*;

    #[tokio::test]
    async fn turn_ends_after_equal_cost() {
        poll_fn(|cx| {
            for (note, least) in [
                (TurnBudget::copied as fn(&mut TurnBudget, usize), 256 << 10),
                (TurnBudget::spliced, 1024 << 10),
                (TurnBudget::edited, 64 << 10),
            ] {
                let mut turn = TurnBudget::default();
                note(&mut turn, least - 4);
                assert!(!turn.is_over(cx));
                note(&mut turn, 4);
                assert!(turn.is_over(cx));
            }
            Poll::Ready(())
        })
        .await;
    }

    #[tokio::test]
    async fn others_are_served_between_requests() {
        let local = tokio::task::LocalSet::new();
        let served = Rc::new(Cell::new(0));
        let seen = served.clone();
        let busy = async move {
            for _ in 0..1000 {
                poll_fn(poll_request).await;
                served.set(served.get() + 1);
            }
        };
        local.spawn_local(busy);
        local
            .run_until(async move {
                while seen.get() == 0 {
                    tokio::task::yield_now().await
                }
                assert_eq!(seen.get(), 32);
            })
            .await;
    }
}
