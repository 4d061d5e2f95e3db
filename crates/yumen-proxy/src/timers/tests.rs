//! Deadlines as the driver meets them.

use std::rc::Rc;
use std::time::Duration;

use tokio::task::LocalSet;

use super::Timers;
use crate::clock;

#[test]
fn a_deadline_that_passed_while_the_worker_was_held_up_is_met() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    clock::simulate(0);
    LocalSet::new().block_on(&runtime, async {
        let timers = Rc::<Timers>::default();
        let driver = tokio::task::spawn_local(timers.clone().drive());
        let sleeper = tokio::task::spawn_local(timers.sleep(5));
        // Both have begun to wait when this goes on.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        clock::simulate_unseen(60_000);
        tokio::time::timeout(Duration::from_secs(60), sleeper).await.expect("it is woken").unwrap();
        driver.abort();
    });
}
