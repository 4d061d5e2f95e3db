use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use serde_json::json;
use yumen_plugin::Now;
use yumen_plugin::background::{BackgroundHost, RedisReply};

use super::*;
use crate::testing::PluginBench;

/// A Redis with replies and sleeps under the control of the test.
#[derive(Default)]
struct Held {
    scripts: RefCell<Vec<RedisScript>>,
    answer: Cell<Option<i64>>,
    is_down: Cell<bool>,
    /// Number of sleeps that may end.
    naps: Cell<usize>,
    tasks: RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>,
}

/// The outbound connections of a node.
struct Way(Rc<Held>);

impl BackgroundHost for Way {
    fn redis(&self, _: &Arc<RedisTarget>, call: RedisScriptCall) -> LocalFuture<'static, RedisResult> {
        self.0.scripts.borrow_mut().push(call.script);
        let redis = self.0.clone();
        if redis.is_down.get() {
            return Box::pin(std::future::ready(Err(RedisFault::Timeout)));
        }
        Box::pin(std::future::poll_fn(move |_| match redis.answer.get() {
            Some(reply) => Poll::Ready(Ok(RedisReply::Array(vec![RedisReply::Integer(reply)]))),
            None => Poll::Pending,
        }))
    }

    fn spawn(&self, task: LocalFuture<'static, ()>) {
        self.0.tasks.borrow_mut().push(task);
    }

    fn sleep(&self, _: Duration) -> LocalFuture<'static, ()> {
        let (redis, until) = (self.0.clone(), self.0.naps.get() + 1);
        Box::pin(std::future::poll_fn(move |_| match redis.naps.get() >= until {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }

    fn now(&self) -> Now {
        Now::default()
    }

    fn count_degraded(&self) {}
}

impl Held {
    /// Ends all current sleeps; returns the scripts called since the last time.
    fn nap(&self) -> Vec<RedisScript> {
        self.naps.set(self.naps.get() + 1);
        // Tasks may spawn further tasks.
        for _ in 0..2 {
            let mut tasks = self.tasks.take();
            tasks.retain_mut(|task| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            self.tasks.borrow_mut().extend(tasks);
        }
        self.scripts.take()
    }
}

/// A plugin with its counters in this Redis.
fn plugin(redis: &Rc<Held>) -> (PluginBench, Arc<dyn yumen_plugin::Plugin>) {
    let mut bench = PluginBench::new();
    bench.host.outbound = Some(Rc::new(Way(redis.clone())));
    let settings = json!({"conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "host",
        "policy": "redis", "redis_host": "redis"});
    let plugin = bench.plugin("limit-conn", settings);
    (bench, plugin)
}

#[test]
fn only_confirmed_members_are_renewed() {
    let redis = Rc::new(Held::default());
    let (bench, plugin) = plugin(&redis);
    let mut ex = bench.exchange("GET / HTTP/1.1");
    let Step::Wait(mut wait) = plugin.access(&mut ex) else { panic!("Redis is asked") };
    let mut cx = Context::from_waker(Waker::noop());
    assert!(wait.as_mut().poll(&mut cx).is_pending());
    assert_eq!(redis.nap(), [ENTER], "whether it is let in is not known");
    redis.answer.set(Some(1));
    assert!(matches!(wait.as_mut().poll(&mut cx), Poll::Ready(Step::Continue)));
    drop(wait);
    assert_eq!(redis.nap(), [RENEW]);
}

#[test]
fn removals_are_repeated_until_confirmed() {
    let redis = Rc::new(Held::default());
    redis.answer.set(Some(1));
    let (bench, plugin) = plugin(&redis);
    let mut ex = bench.exchange("GET / HTTP/1.1");
    let Step::Wait(mut wait) = plugin.access(&mut ex) else { panic!("Redis is asked") };
    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop(wait);
    assert_eq!((redis.nap(), redis.nap()), (vec![ENTER], vec![RENEW]));
    redis.is_down.set(true);
    drop(ex);
    assert_eq!([(); 3].map(|()| redis.nap()), [(); 3].map(|()| [LEAVE]));
    redis.is_down.set(false);
    assert_eq!(redis.nap(), [LEAVE]);
    assert!(redis.nap().is_empty() && redis.tasks.borrow().is_empty(), "it was heard");
}

#[test]
fn unconfirmed_members_are_removed_more_than_once() {
    let redis = Rc::new(Held::default());
    redis.is_down.set(true);
    let (bench, plugin) = plugin(&redis);
    let mut ex = bench.exchange("GET / HTTP/1.1");
    let Step::Wait(mut wait) = plugin.access(&mut ex) else { panic!("Redis is asked") };
    assert!(wait.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    drop(wait);
    redis.is_down.set(false);
    redis.answer.set(Some(1));
    let batches = [(); 5].map(|()| redis.nap());
    let leaves = |scripts: &Vec<RedisScript>| scripts.iter().filter(|script| **script == LEAVE).count();
    assert_eq!(batches.iter().map(leaves).sum::<usize>(), 1 + HEARD_WHEN_UNCERTAIN as usize, "{batches:?}");
    assert!(redis.tasks.borrow().is_empty());
}

#[test]
fn pending_removals_are_bounded() {
    let redis = Rc::new(Held::default());
    redis.is_down.set(true);
    let (bench, _) = plugin(&redis);
    let config: LimitConnSettings =
        serde_json::from_value(json!({"policy": "redis", "redis_host": "redis"})).unwrap();
    let carry = yumen_plugin::Carry::default();
    let target = config.redis.target(config.policy, &carry).unwrap().unwrap();
    let remote = LimitConnRedis { target, prefix: "".into(), ttl_ms: 3_600_000, number: u64::MAX };
    let outbound: SharedOutbound = bench.host.outbound.clone().unwrap();
    let members = MembershipRenewer::of(&remote, &outbound);
    for member in 0..OWED_MAX as u64 + 10 {
        members.owe(MemberRemoval { member, keys: Vec::new(), times: 1, until_ms: 1 });
    }
    assert_eq!(members.owed.borrow().len(), OWED_MAX);
}
