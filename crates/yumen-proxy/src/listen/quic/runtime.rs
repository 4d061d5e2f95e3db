//! Runtime of the QUIC library on a worker: tasks of the worker's thread and timers of its own clock.

use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use quinn::{AsyncTimer, AsyncUdpSocket, Runtime, TokioRuntime};

use crate::runtime::clock;
use crate::runtime::timers::{Timer, Timers};

thread_local! {
    static ALARMS: RefCell<QuicTimers> = RefCell::default();
}

/// QUIC timers of one thread. The library requires a timer to be `Send` although it never moves, so it holds
/// a number and the timer stays here.
#[derive(Default)]
struct QuicTimers {
    timers: Option<Rc<Timers>>,
    set: Vec<Option<Timer>>,
    free: Vec<usize>,
}

/// Runtime of the worker on whose thread it is used.
#[derive(Debug)]
pub(super) struct WorkerRuntime;

impl WorkerRuntime {
    /// Starts the timer task of the thread on the first call. QUIC timers have a resolution of 1 ms.
    pub(super) fn start() -> WorkerRuntime {
        ALARMS.with_borrow_mut(|alarms| {
            let timers = alarms.timers.get_or_insert_with(|| {
                let timers = Rc::new(Timers::millisecond_precise());
                let driven = timers.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = driven.drive().await {
                        tracing::error!(%error, "HTTP/3 timer task failed");
                    }
                });
                timers
            });
            drop(timers.clone());
        });
        WorkerRuntime
    }
}

impl Runtime for WorkerRuntime {
    fn new_timer(&self, at: Instant) -> Pin<Box<dyn AsyncTimer>> {
        let number = ALARMS.with_borrow_mut(|alarms| {
            let timer = alarms.timers.as_ref().map(Timers::timer);
            match alarms.free.pop() {
                Some(number) => {
                    alarms.set[number] = timer;
                    number
                }
                None => {
                    alarms.set.push(timer);
                    alarms.set.len() - 1
                }
            }
        });
        let mut alarm = Box::pin(QuicTimer(number));
        alarm.as_mut().reset(at);
        alarm
    }

    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        tokio::task::spawn_local(future);
    }

    fn wrap_udp_socket(&self, socket: std::net::UdpSocket) -> io::Result<Arc<dyn AsyncUdpSocket>> {
        TokioRuntime.wrap_udp_socket(socket)
    }
}

/// Number of a timer of the library.
struct QuicTimer(usize);

impl QuicTimer {
    fn with<T>(&self, then: impl FnOnce(&Timer) -> T) -> Option<T> {
        ALARMS.with_borrow(|alarms| alarms.set.get(self.0)?.as_ref().map(then))
    }
}

impl AsyncTimer for QuicTimer {
    fn reset(self: Pin<&mut Self>, at: Instant) {
        let left = at.saturating_duration_since(Instant::now());
        // The cached clock is behind the real time, and a timer that fires early would fire a second time.
        let lag_ms = clock::exact().mono_ms().saturating_sub(clock::now().mono_ms());
        let left_ms = u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX / 2);
        self.with(|timer| timer.set((left_ms + lag_ms).max(1)));
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        match self.with(|timer| timer.is_over(cx)) {
            Some(true) => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl fmt::Debug for QuicTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Alarm").field(&self.0).finish()
    }
}

impl Drop for QuicTimer {
    fn drop(&mut self) {
        // When the thread ends, the thread-local may be destroyed already.
        let _ = ALARMS.try_with(|alarms| {
            let mut alarms = alarms.borrow_mut();
            // Returned, so that it is dropped after the borrow of the table has ended.
            let timer = alarms.set.get_mut(self.0).and_then(Option::take);
            alarms.free.push(self.0);
            timer
        });
    }
}
