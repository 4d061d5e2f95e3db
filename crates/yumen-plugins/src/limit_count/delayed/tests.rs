use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use serde_json::{Value, json};
use yumen_plugin::background::{RedisResult, RedisTarget};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{BackgroundHost, Now, Plugin, Step};

use super::*;
use crate::testing::PluginBench;

/// A Redis that implements the two scripts; the test controls its replies.
#[derive(Default)]
struct FakeRedis {
    counts: RefCell<BTreeMap<Vec<u8>, u64>>,
    is_down: Cell<bool>,
    calls: Cell<usize>,
}

impl FakeRedis {
    fn run(&self, call: &RedisScriptCall) -> RedisResult {
        self.calls.set(self.calls.get() + 1);
        if self.is_down.get() {
            return Err(RedisFault::Down);
        }
        let arg =
            |at: usize| std::str::from_utf8(&call.args[at]).expect("text").parse::<u64>().expect("a number");
        let mut counts = self.counts.borrow_mut();
        let (cost, second) = match call.script == FIXED {
            true => (arg(2), arg(1) * 1000),
            false => (arg(0), counts.get(&call.keys[1]).copied().unwrap_or(0)),
        };
        let count = counts.entry(call.keys[0].clone()).or_default();
        *count += cost;
        Ok(RedisReply::Array([*count, second].map(|number| RedisReply::Integer(number as i64)).to_vec()))
    }
}

/// The outbound connections of a node. Tasks run when the test ends an interval.
struct Way {
    redis: Rc<FakeRedis>,
    tasks: RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>,
    /// Number of sleeps that may end.
    intervals: Rc<Cell<usize>>,
    is_ending: Rc<Cell<bool>>,
    now: Cell<Now>,
}

impl BackgroundHost for Way {
    fn redis(&self, _: &Arc<RedisTarget>, call: RedisScriptCall) -> LocalFuture<'static, RedisResult> {
        Box::pin(std::future::ready(self.redis.run(&call)))
    }

    fn spawn(&self, task: LocalFuture<'static, ()>) {
        self.tasks.borrow_mut().push(task);
    }

    fn sleep(&self, _: Duration) -> LocalFuture<'static, ()> {
        let (intervals, until) = (self.intervals.clone(), self.intervals.get() + 1);
        Box::pin(std::future::poll_fn(move |_| match intervals.get() >= until {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }

    fn rest(&self, delay: Duration) -> LocalFuture<'static, bool> {
        let (mut sleep, is_ending) = (self.sleep(delay), self.is_ending.clone());
        Box::pin(std::future::poll_fn(move |context| match is_ending.get() {
            true => Poll::Ready(false),
            false => sleep.as_mut().poll(context).map(|()| true),
        }))
    }

    fn now(&self) -> Now {
        self.now.get()
    }

    fn count_degraded(&self) {}
}

impl Way {
    fn run_tasks(&self) {
        let tasks = self.tasks.take();
        let pending = tasks.into_iter().filter_map(|mut task| {
            let polled = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            polled.is_pending().then_some(task)
        });
        let pending: Vec<_> = pending.collect();
        self.tasks.borrow_mut().extend(pending);
    }

    fn interval(&self) {
        self.intervals.set(self.intervals.get() + 1);
        self.run_tasks();
    }

    fn end(&self) {
        self.is_ending.set(true);
        self.run_tasks();
        assert!(self.tasks.borrow().is_empty(), "a task goes on in a worker that has ended");
    }
}

struct Node {
    bench: PluginBench,
    host: Rc<Way>,
    plugin: Arc<dyn Plugin>,
}

impl Node {
    fn new(redis: &Rc<FakeRedis>, settings: Value) -> Node {
        let mut bench = PluginBench::new();
        let host = Rc::new(Way {
            redis: redis.clone(),
            tasks: RefCell::default(),
            intervals: Rc::default(),
            is_ending: Rc::default(),
            now: Cell::new(bench.host.now()),
        });
        bench.host.outbound = Some(host.clone());
        let mut all = json!({"policy": "redis", "redis_host": "redis", "sync_interval": 1});
        all.as_object_mut().expect("an object").extend(settings.as_object().expect("an object").clone());
        let plugin = bench.plugin("limit-count", all);
        Node { bench, host, plugin }
    }

    /// Number of requests that pass; none waits.
    fn send(&self, requests: usize) -> usize {
        let passes = |_: &usize| {
            let mut ex = self.bench.exchange("GET / HTTP/1.1");
            match self.plugin.access(&mut ex) {
                Step::Continue => true,
                Step::Respond(_) => false,
                _ => panic!("the request waits"),
            }
        };
        (0..requests).filter(passes).count()
    }

    fn advance(&self, by: Duration) {
        self.bench.host.advance(by);
        self.host.now.set(self.bench.host.now());
    }
}

#[test]
fn nodes_learn_of_each_other_at_each_interval_and_exceed_by_no_more_than_one() {
    for window_type in ["fixed", "sliding"] {
        let redis = Rc::<FakeRedis>::default();
        let settings = json!({"count": 100, "time_window": 3600, "window_type": window_type});
        let nodes = [(); 2].map(|()| Node::new(&redis, settings.clone()));
        let (rate, mut admitted) = (7, 0);
        for _ in 0..30 {
            for node in &nodes {
                admitted += node.send(rate);
                node.host.interval();
            }
        }
        assert!((100..=100 + 2 * rate).contains(&admitted), "{window_type}: {admitted} of 100");
        let counted: u64 = redis.counts.borrow().values().sum();
        assert_eq!(counted as usize, admitted, "{window_type}: Redis knows of all");
    }
}

#[test]
fn one_node_alone_is_exact_and_asks_once_an_interval_however_many_requests_come() {
    let redis = Rc::<FakeRedis>::default();
    let node = Node::new(&redis, json!({"count": 5000, "time_window": 3600}));
    let mut admitted = 0;
    for _ in 0..10 {
        admitted += node.send(1000);
        node.host.interval();
    }
    assert_eq!(admitted, 5000);
    // Each of the five intervals sent one call.
    assert_eq!(redis.calls.get(), 5);
}

#[test]
fn failed_syncs_are_repeated_while_requests_continue() {
    let redis = Rc::<FakeRedis>::default();
    let nodes = [(); 2].map(|()| Node::new(&redis, json!({"count": 10, "time_window": 3600})));
    redis.is_down.set(true);
    assert_eq!(nodes[0].send(6), 6);
    nodes[0].host.interval();
    nodes[0].host.interval();
    redis.is_down.set(false);
    nodes[0].host.interval();
    assert_eq!(redis.counts.borrow().values().sum::<u64>(), 6);
    // The other node sees the six with its first request.
    assert_eq!(nodes[1].send(1), 1);
    nodes[1].host.run_tasks();
    assert_eq!(nodes[1].send(10), 3);
}

#[test]
fn sliding_window_is_synced_after_the_next_has_begun() {
    let redis = Rc::<FakeRedis>::default();
    let settings = json!({"count": 100, "time_window": 60, "window_type": "sliding"});
    let node = Node::new(&redis, settings);
    assert_eq!(node.send(5), 5);
    node.host.run_tasks();
    assert_eq!(node.send(7), 7);
    // The next window begins before the interval ends, so Redis gets the remainder later.
    node.advance(Duration::from_secs(41));
    assert_eq!(node.send(2), 2);
    redis.is_down.set(true);
    node.host.interval();
    redis.is_down.set(false);
    node.host.interval();
    let counts: Vec<u64> = redis.counts.borrow().values().copied().collect();
    assert_eq!(counts, [12, 2], "by window");
}

#[test]
fn counts_stay_when_another_worker_ends_the_window() {
    for kind in [WindowType::Fixed, WindowType::Sliding] {
        let (mut tally, now) = (DelayedCounter::default(), Now { mono_us: 1_000_000, unix_ms: 90_000 });
        assert!(tally.turn(kind, 60_000, now).is_none());
        *tally.unreported.get_mut() += 2;
        assert!(tally.turn(kind, 60_000, now).is_none(), "the second worker to find that there was none");
        assert_eq!((tally.unreported.into_inner(), tally.turns), (2, 1));
    }
}

#[test]
fn a_fixed_window_ends_and_the_next_begins_from_nothing() {
    let redis = Rc::<FakeRedis>::default();
    let node = Node::new(&redis, json!({"count": 3, "time_window": 60}));
    assert_eq!(node.send(5), 3);
    node.host.interval();
    redis.counts.borrow_mut().clear();
    node.advance(Duration::from_secs(61));
    assert_eq!(node.send(5), 3);
}

#[test]
fn unsynced_counts_of_a_fixed_window_are_dropped_at_its_end() {
    let redis = Rc::<FakeRedis>::default();
    let node = Node::new(&redis, json!({"count": 10, "time_window": 60}));
    redis.is_down.set(true);
    assert_eq!(node.send(10), 10);
    node.host.interval();
    node.advance(Duration::from_secs(59));
    node.host.interval();
    node.advance(Duration::from_secs(2));
    redis.is_down.set(false);
    node.host.interval();
    assert_eq!(redis.counts.borrow().values().sum::<u64>(), 0);
    assert_eq!(node.send(11), 10);
}

#[test]
fn rules_with_equal_values_count_separately() {
    let redis = Rc::<FakeRedis>::default();
    let rules = json!([
        {"count": 3, "time_window": 3600, "key": "$http_user"},
        {"count": 3, "time_window": 3600, "key": "$http_team"}
    ]);
    let node = Node::new(&redis, json!({"rules": rules}));
    let admitted = (0..5).filter(|_| {
        let mut ex = node.bench.exchange("GET / HTTP/1.1\nuser: a\nteam: a");
        matches!(node.plugin.access(&mut ex), Step::Continue)
    });
    assert_eq!(admitted.count(), 3);
    node.host.interval();
    let counts = redis.counts.borrow();
    let counted: Vec<_> = counts.iter().map(|(key, count)| (key.ends_with(b":a#1"), *count)).collect();
    assert_eq!(counted, [(true, 3), (false, 3)], "{counts:?}");
}

#[test]
fn a_process_that_takes_over_goes_on_in_the_window_and_redis_hears_of_each_request_once() {
    for window_type in ["fixed", "sliding"] {
        let redis = Rc::<FakeRedis>::default();
        let settings =
            json!({"count": 50, "time_window": 60, "window_type": window_type, "sync_interval": 20});
        let [first, second, third] = [(); 3].map(|()| Node::new(&redis, settings.clone()));
        let take_over = |old: &Node, new: &Node| {
            let counted = old.bench.carry.export();
            new.bench.carry.take_over(&counted, new.bench.host.now());
            counted
        };
        let hand_over = |old: &Node, new: &Node, counted: &mut yumen_plugin::ExportedState| {
            let (since, now) = old.bench.carry.export_since(counted);
            new.bench.carry.take_over(&since, new.bench.host.now());
            *counted = now;
            since.len()
        };
        assert_eq!(first.send(20), 20);
        first.host.run_tasks();
        let mut of_first = take_over(&first, &second);
        assert_eq!(second.send(10), 10);
        second.host.run_tasks();
        // The first process drains. The second sees its synchronized counts in Redis.
        assert_eq!(first.send(5), 5);
        assert_eq!(hand_over(&first, &second, &mut of_first), 1, "{window_type}");
        assert_eq!(first.send(3), 3);
        first.host.interval();
        assert_eq!(hand_over(&first, &second, &mut of_first), 0, "{window_type}");
        second.host.interval();
        take_over(&second, &third);
        assert_eq!(third.send(30), 50 - 20 - 10 - 5 - 3, "{window_type}");
        for node in [first, second, third] {
            node.host.end();
        }
        assert_eq!(redis.counts.borrow().values().sum::<u64>(), 50, "{window_type}: all, and once");
    }
}

#[test]
fn a_worker_that_ends_without_redis_does_not_wait_for_it() {
    let redis = Rc::<FakeRedis>::default();
    let node = Node::new(&redis, json!({"count": 10, "time_window": 3600}));
    redis.is_down.set(true);
    assert_eq!(node.send(6), 6);
    node.host.end();
}
