//! Deadlines under the timer driver.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tokio::task::LocalSet;

use super::Timers;
use crate::runtime::clock;

#[test]
fn a_deadline_that_passed_while_the_worker_was_held_up_is_met() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    clock::simulate(0);
    LocalSet::new().block_on(&runtime, async {
        let timers = Rc::<Timers>::default();
        let driver = tokio::task::spawn_local(timers.clone().drive());
        let sleeper = tokio::task::spawn_local(timers.sleep(5));
        // Both tasks have begun to wait by now.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        clock::simulate_unseen(60_000);
        tokio::time::timeout(Duration::from_secs(60), sleeper).await.expect("it is woken").unwrap();
        driver.abort();
    });
}

#[test]
fn longest_idle_timer_is_woken_first() {
    clock::simulate(1_000_000);
    let timers = Rc::<Timers>::default();
    let (long, short) = (timers.timer(), timers.timer());
    let woken = Arc::<[Woken; 2]>::default();
    for (timer, at) in [(&long, 0), (&short, 1)] {
        let waker = Waker::from(Arc::new(Waking(woken.clone(), at)));
        assert!(!timer.is_over(&mut Context::from_waker(&waker)));
    }
    // The second task sets its deadline once and is polled now and then.
    short.set(60_000);
    long.set_idle(true);
    long.set(70_000);
    clock::simulate(1_010_000);
    short.set_idle(true);
    short.set_idle(false);
    short.set_idle(true);
    // The task is still waiting.
    long.set_idle(true);
    timers.wake_idle(1);
    assert_eq!(woken.each_ref().map(|woken| woken.load(Relaxed)), [true, false]);
}

type Woken = std::sync::atomic::AtomicBool;

struct Waking(Arc<[Woken; 2]>, usize);

impl Wake for Waking {
    fn wake(self: Arc<Self>) {
        self.0[self.1].store(true, Relaxed);
    }
}
