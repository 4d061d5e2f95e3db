//! How long a task goes on while there is something to do: what is ready elsewhere on its worker waits meanwhile.
//!
//! A turn is tokio's budget of a task, 128 units, of which sockets take one whenever they are asked whether they are
//! ready. What costs more takes more; a task without any is called again when the reactor has been asked and others
//! were.

use std::task::{Context, Poll, ready};

use tokio::task::coop;

/// A request that came before the one ahead of it was answered: 32 of them are a turn.
const REQUEST: u32 = 4;

/// What these bytes take of a turn: 512 KiB that are copied, 1 MiB the system moves, 64 KiB a plugin looks into.
pub(crate) fn copied(bytes: usize) -> u32 {
    units(bytes, 4 * 1024)
}

pub(crate) fn spliced(bytes: usize) -> u32 {
    units(bytes, 8 * 1024)
}

pub(crate) fn edited(bytes: usize) -> u32 {
    units(bytes, 512)
}

fn units(bytes: usize, per_unit: usize) -> u32 {
    u32::try_from(bytes.div_ceil(per_unit)).unwrap_or(u32::MAX)
}

/// Whether there is something left of the task's turn; if not, who is asked for more has it come back later.
pub(crate) fn is_left() -> bool {
    coop::has_budget_remaining()
}

/// Takes so much of the task's turn, at most what is left of it.
pub(crate) fn spend(cx: &mut Context<'_>, units: u32) {
    for _ in 0..units {
        if !is_left() {
            return;
        }
        if let Poll::Ready(unit) = coop::poll_proceed(cx) {
            unit.made_progress();
        }
    }
}

/// Takes what a request takes that came before the one ahead of it was answered; where nothing is left, it waits for the
/// next turn.
pub(crate) fn poll_request(cx: &mut Context<'_>) -> Poll<()> {
    ready!(coop::poll_proceed(cx)).made_progress();
    spend(cx, REQUEST - 1);
    Poll::Ready(())
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// How many more units a task has after these.
    async fn left_after(spent: u32) -> u32 {
        let mut left = 0;
        tokio::task::yield_now().await;
        poll_fn(|cx| {
            spend(cx, spent);
            while coop::has_budget_remaining() {
                spend(cx, 1);
                left += 1;
            }
            Poll::Ready(left)
        })
        .await
    }

    #[tokio::test]
    async fn a_turn_is_worth_what_it_says() {
        let left = tokio::spawn(async {
            let mut left = Vec::new();
            for spent in [0, REQUEST * 31, copied(448 << 10), spliced(1008 << 10), edited(63 << 10), u32::MAX]
            {
                left.push(left_after(spent).await);
            }
            left
        });
        assert_eq!(left.await.unwrap(), [128, 4, 16, 2, 2, 0]);
    }
}
