//! What the QUIC library asks of a runtime, given by the worker's own: tasks of its thread, and deadlines that
//! need no clock of the runtime's.

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

use crate::clock;
use crate::timers::{Timer, Timers};

thread_local! {
    static ALARMS: RefCell<QuicTimers> = RefCell::default();
}

/// The deadlines of one thread's connections. The library wants to be able to send them to another thread,
/// which never happens: they stay here, and it holds their numbers.
#[derive(Default)]
struct QuicTimers {
    timers: Option<Rc<Timers>>,
    set: Vec<Option<Timer>>,
    free: Vec<usize>,
}

/// The runtime of the thread it is used on, which is a worker's.
#[derive(Debug)]
pub(super) struct WorkerRuntime;

impl WorkerRuntime {
    /// Made once a thread serves HTTP/3; its deadlines are then kept to the millisecond.
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

/// A deadline of the library's.
struct QuicTimer(usize);

impl QuicTimer {
    fn with<T>(&self, then: impl FnOnce(&Timer) -> T) -> Option<T> {
        ALARMS.with_borrow(|alarms| alarms.set.get(self.0)?.as_ref().map(then))
    }
}

impl AsyncTimer for QuicTimer {
    fn reset(self: Pin<&mut Self>, at: Instant) {
        let left = at.saturating_duration_since(Instant::now());
        // The worker's clock stood still since it last waited; a deadline that comes early would come again.
        let behind_ms = clock::exact().mono_ms().saturating_sub(clock::now().mono_ms());
        let left_ms = u64::try_from(left.as_micros().div_ceil(1000)).unwrap_or(u64::MAX / 2);
        self.with(|timer| timer.set((left_ms + behind_ms).max(1)));
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
        // Where the thread ends, its deadlines are gone already.
        let _ = ALARMS.try_with(|alarms| {
            let mut alarms = alarms.borrow_mut();
            let timer = alarms.set.get_mut(self.0).and_then(Option::take);
            alarms.free.push(self.0);
            timer
        });
    }
}
