//! How long a task goes on while there is something to do: what is ready elsewhere on its worker waits meanwhile.

use std::pin::pin;
use std::task::{Context, Poll, ready};

use tokio::task::{coop, yield_now};

/// What one direction of a flow moves before others have their turn, its own other direction among them.
#[derive(Debug, Default)]
pub(crate) struct TurnBudget {
    /// In bytes that are copied.
    moved: usize,
}

impl TurnBudget {
    /// Half of what tokio's budget of a task is enough for where TLS is read, which takes a unit each 4 KiB: the other
    /// direction must find some of it.
    const COPIED_BYTES: usize = 256 * 1024;
    /// What the system moves costs a quarter of that, what a plugin looks into more.
    const SPLICED_PER_COPIED: usize = 4;
    const COPIED_PER_EDITED: usize = 4;
    /// However short, a piece is a write, and maybe a call of a plugin.
    const PIECE_BYTES: usize = 1024;

    /// Notes bytes that were copied.
    #[inline]
    pub(crate) fn copied(&mut self, bytes: usize) {
        self.moved += bytes;
    }

    /// Notes bytes the system moved.
    #[inline]
    pub(crate) fn spliced(&mut self, bytes: usize) {
        self.moved += bytes / TurnBudget::SPLICED_PER_COPIED;
    }

    /// Notes bytes a plugin looked into.
    #[inline]
    pub(crate) fn edited(&mut self, bytes: usize) {
        self.moved += bytes * TurnBudget::COPIED_PER_EDITED;
    }

    /// Notes a piece of any length.
    #[inline]
    pub(crate) fn piece(&mut self) {
        self.moved += TurnBudget::PIECE_BYTES;
    }

    /// Whether others are to have theirs; then the task is called again when they had, and when the reactor was asked
    /// who else is ready.
    #[inline]
    pub(crate) fn is_over(&self, cx: &mut Context<'_>) -> bool {
        let is_over = self.moved >= TurnBudget::COPIED_BYTES;
        if is_over {
            give_way(cx);
        }
        is_over
    }
}

/// Has the task called again when others have had their turn.
#[cold]
pub(crate) fn give_way(cx: &mut Context<'_>) {
    // Asked once it has the task woken, and is ready no sooner.
    let _ = pin!(yield_now()).poll(cx);
}

/// What a request takes of tokio's budget of a task that came before the one ahead of it was answered: 32 of them are
/// all of it.
const REQUEST: u32 = 4;

/// Notes such a request; where nothing is left of the budget, it waits for the next.
pub(crate) fn poll_request(cx: &mut Context<'_>) -> Poll<()> {
    for _ in 0..REQUEST {
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
    async fn a_turn_is_over_after_what_costs_as_much() {
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
