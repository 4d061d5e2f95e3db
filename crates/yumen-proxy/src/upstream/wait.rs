//! Bounded waits of attempts, which also end when the client closes.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::fault::FaultKind;
use crate::runtime::timers::Timer;

/// The bound of a wait: a timeout, or the end of the client.
pub(crate) trait AttemptWait {
    /// Starts a wait of at most `timeout_ms` milliseconds; 0 for no limit.
    fn start(&mut self, timeout_ms: u64);

    /// Continues a wait whose timeout has passed for at most `timeout_ms` milliseconds more.
    fn extend(&mut self, timeout_ms: u64);

    /// Ready with the reason when the wait has ended: `late` after its timeout.
    fn poll_end(&mut self, cx: &mut Context<'_>, late: FaultKind) -> Poll<FaultKind>;
}

/// Returns the output of `future`, or the reason if the wait ends first.
pub(crate) async fn wait_for<F: Future + ?Sized>(
    wait: &mut impl AttemptWait,
    late: FaultKind,
    mut future: Pin<&mut F>,
) -> Result<F::Output, FaultKind> {
    poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Ok(output));
        }
        wait.poll_end(cx, late).map(Err)
    })
    .await
}

impl AttemptWait for &Timer {
    fn start(&mut self, timeout_ms: u64) {
        self.set(timeout_ms);
    }

    fn extend(&mut self, timeout_ms: u64) {
        self.set(timeout_ms);
    }

    fn poll_end(&mut self, cx: &mut Context<'_>, late: FaultKind) -> Poll<FaultKind> {
        if self.is_over(cx) { Poll::Ready(late) } else { Poll::Pending }
    }
}
