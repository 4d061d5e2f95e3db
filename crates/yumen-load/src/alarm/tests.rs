use tokio::runtime::{Builder, LocalOptions};
use tokio::task::spawn_local;

use super::*;

const MS: u64 = 1_000_000;

fn with_alarm<F: Future>(test: impl FnOnce(RunClock, Rc<AlarmQueue>) -> F) -> F::Output {
    let runtime = Builder::new_current_thread().enable_io().build_local(LocalOptions::default()).unwrap();
    runtime.block_on(async {
        let clock = RunClock::start();
        let alarm = AlarmQueue::new(clock).unwrap();
        spawn_local(alarm.clone().drive());
        test(clock, alarm).await
    })
}

#[test]
fn moments_come_in_their_order_and_never_early() {
    with_alarm(|clock, alarm| async move {
        let order = Rc::new(RefCell::new(Vec::new()));
        let tasks: Vec<_> = [30, 10, 20, 10, 0]
            .into_iter()
            .map(|at_ms| {
                let (timer, order) = (alarm.timer(), order.clone());
                spawn_local(async move {
                    timer.until(at_ms * MS).await;
                    assert!(clock.now_ns() >= at_ms * MS, "{at_ms} came early");
                    order.borrow_mut().push(at_ms);
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*order.borrow(), [0, 10, 10, 20, 30]);
    });
}

#[test]
fn a_moment_that_is_moved_away_does_not_come_when_it_was_due_first() {
    with_alarm(|clock, alarm| async move {
        let (moved, other) = (alarm.timer(), alarm.timer());
        moved.set(5 * MS);
        moved.set(3_600_000 * MS);
        let never = moved.within(u64::MAX, other.until(30 * MS)).await;
        assert_eq!(never, Some(()));
        assert!(clock.now_ns() >= 30 * MS);
        moved.set(3_600_000 * MS);
        let is_over = poll_fn(|cx| Poll::Ready(moved.is_over(cx))).await;
        assert!(!is_over, "an hour has not passed");
        // Set to an earlier time again, the timer fires.
        moved.until(clock.now_ns() + 5 * MS).await;
    });
}

#[test]
fn overdue_request_times_out() {
    with_alarm(|clock, alarm| async move {
        let timer = alarm.timer();
        let nothing = timer.within(clock.now_ns() + 5 * MS, std::future::pending::<()>()).await;
        assert_eq!(nothing, None);
        assert_eq!(timer.within(clock.now_ns() + 3_600_000 * MS, async { 7 }).await, Some(7));
    });
}

#[test]
fn deadlines_that_are_moved_often_are_queued_once() {
    with_alarm(|clock, alarm| async move {
        let timer = alarm.timer();
        for _ in 0..1000 {
            timer.set(clock.now_ns() + 3_600_000 * MS);
        }
        assert_eq!(alarm.queue.borrow().len(), 1);
    });
}
