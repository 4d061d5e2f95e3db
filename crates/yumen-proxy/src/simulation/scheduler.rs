//! Tasks in random order, sleeping in virtual time, and the random numbers of a seed.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

/// A small generator (xorshift64*), the same numbers for the same seed.
pub(crate) struct Random(Cell<u64>);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        Random(Cell::new((mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB) | 1))
    }

    pub(crate) fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Below `bound`, which is not 0.
    pub(crate) fn below(&self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    pub(crate) fn percent(&self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn one<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// Up to `max`, small ones as likely as large ones.
    pub(crate) fn size(&self, max: usize) -> usize {
        let bits = self.below(max.ilog2() as usize + 2);
        self.below(1 << bits).min(max)
    }
}

type Future = Pin<Box<dyn std::future::Future<Output = ()>>>;

struct Task {
    name: String,
    future: Option<Future>,
}

struct Flag {
    task: usize,
    ready: Arc<Mutex<BTreeSet<usize>>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.ready.lock().unwrap().insert(self.task);
    }
}

/// All tasks of a world and its time.
pub(crate) struct Scheduler {
    pub(crate) random: Random,
    pub(crate) now_us: Cell<u64>,
    tasks: RefCell<BTreeMap<usize, Task>>,
    next_task: Cell<usize>,
    ready: Arc<Mutex<BTreeSet<usize>>>,
    sleeps: RefCell<BTreeMap<(u64, u64), Waker>>,
    sleep_count: Cell<u64>,
    events: RefCell<Option<Vec<String>>>,
}

impl Scheduler {
    pub(crate) fn new(seed: u64, keep_events: bool) -> Rc<Scheduler> {
        Rc::new(Scheduler {
            random: Random::new(seed),
            now_us: Cell::new(10_000_000),
            tasks: RefCell::default(),
            next_task: Cell::new(0),
            ready: Arc::default(),
            sleeps: RefCell::default(),
            sleep_count: Cell::new(0),
            events: RefCell::new(keep_events.then(Vec::new)),
        })
    }

    /// Notes an event, if anybody will read it.
    pub(crate) fn note(&self, event: impl FnOnce() -> String) {
        if let Some(events) = &mut *self.events.borrow_mut() {
            events.push(format!("{:>10} {}", self.now_us.get() - 10_000_000, event()));
        }
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.events.borrow().clone().unwrap_or_default()
    }

    pub(crate) fn spawn(&self, name: String, future: impl std::future::Future<Output = ()> + 'static) {
        let id = self.next_task.get();
        self.next_task.set(id + 1);
        self.tasks.borrow_mut().insert(id, Task { name, future: Some(Box::pin(future)) });
        self.ready.lock().unwrap().insert(id);
    }

    pub(crate) fn ready_count(&self) -> usize {
        self.ready.lock().unwrap().len()
    }

    /// Names of tasks that are not over.
    pub(crate) fn unfinished(&self) -> Vec<String> {
        self.tasks.borrow().values().map(|task| task.name.clone()).collect()
    }

    /// Polls one of the tasks that are ready.
    pub(crate) fn poll_one(&self) {
        let id = {
            let mut ready = self.ready.lock().unwrap();
            let at = self.random.below(ready.len());
            let id = *ready.iter().nth(at).unwrap();
            ready.remove(&id);
            id
        };
        let taken = self.tasks.borrow_mut().get_mut(&id).and_then(|task| task.future.take());
        let Some(mut future) = taken else { return };
        let waker = Waker::from(Arc::new(Flag { task: id, ready: self.ready.clone() }));
        let polled = future.as_mut().poll(&mut Context::from_waker(&waker));
        let mut tasks = self.tasks.borrow_mut();
        match polled {
            Poll::Pending => tasks.get_mut(&id).unwrap().future = Some(future),
            Poll::Ready(()) => {
                let task = tasks.remove(&id).unwrap();
                drop(tasks);
                drop(future);
                self.note(|| format!("{} is over", task.name));
            }
        }
    }

    /// When the next sleeper wakes, in microseconds.
    pub(crate) fn next_sleep_us(&self) -> Option<u64> {
        self.sleeps.borrow().keys().next().map(|key| key.0)
    }

    /// Wakes those who slept until now.
    pub(crate) fn wake_sleepers(&self) {
        loop {
            let mut sleeps = self.sleeps.borrow_mut();
            match sleeps.first_entry() {
                Some(first) if first.key().0 <= self.now_us.get() => first.remove().wake(),
                _ => return,
            }
        }
    }

    /// Sleeps so many microseconds.
    pub(crate) async fn sleep_us(&self, us: u64) {
        let at_us = self.now_us.get() + us;
        let count = self.sleep_count.get();
        self.sleep_count.set(count + 1);
        poll_fn(|cx| {
            if self.now_us.get() >= at_us {
                self.sleeps.borrow_mut().remove(&(at_us, count));
                return Poll::Ready(());
            }
            self.sleeps.borrow_mut().insert((at_us, count), cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Drops all tasks.
    pub(crate) fn clear(&self) {
        let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
        drop(tasks);
    }
}

/// A number that grows, to wait for.
#[derive(Default)]
pub(crate) struct Gate {
    count: Cell<usize>,
    waiting: RefCell<Vec<Waker>>,
}

impl Gate {
    pub(crate) fn get(&self) -> usize {
        self.count.get()
    }

    pub(crate) fn raise(&self, to: usize) {
        self.count.set(self.count.get().max(to));
        self.waiting.borrow_mut().drain(..).for_each(Waker::wake);
    }

    /// Done when the number has been reached.
    pub(crate) async fn reached(&self, count: usize) {
        poll_fn(|cx| {
            if self.count.get() >= count {
                return Poll::Ready(());
            }
            self.waiting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
