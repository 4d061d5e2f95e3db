//! Counting exchanges in Redis: each is a member of its key's set until it is over.
//!
//! A member expires by itself, so that those of a node that died do not stay; a node that lives renews its
//! own in time. Leaving is told without anybody waiting for it.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use yumen_config::schema::Invalid;
use yumen_plugin::outbound::{RedisFault, RedisPlace, RedisResult, RedisTarget, Script, ScriptCall};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{Exchange, Response, Setup, SharedOutbound, Step};

use super::{Config, LimitConn};
use crate::limits::{held_back, remote, with_scratch};

/// Adds a member to each set that is not full, one after another until one is; tells how many there are
/// then, 0 for a full one. The scores are the moments at which members expire.
const ENTER: Script = Script {
    text: "\
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
local member, ttl_ms = ARGV[1], tonumber(ARGV[2])
local told = {}
for i, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', now_ms)
  local running = redis.call('ZCARD', key)
  if running >= tonumber(ARGV[i+2]) then
    told[i] = 0
    break
  end
  redis.call('ZADD', key, now_ms + ttl_ms, member)
  redis.call('PEXPIRE', key, ttl_ms)
  told[i] = running + 1
end
return told",
};

const RENEW: Script = Script {
    text: "\
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, now_ms + ARGV[2], ARGV[1])
  redis.call('PEXPIRE', key, ARGV[2])
end
return 0",
};

const LEAVE: Script = Script {
    text: "\
for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end
return 0",
};

/// Seconds after which a member expires, where settings do not say.
const KEY_TTL_S: u64 = 3600;
const KEY_TTL_S_MAX: u64 = 10 * 365 * 86_400;

/// Where exchanges are counted.
pub(crate) struct Remote {
    target: Arc<RedisTarget>,
    /// What keys have in common.
    prefix: Box<str>,
    ttl_ms: u64,
    /// Tells the limits of this process apart.
    number: u64,
}

/// A rule that applies to an exchange.
struct Asked {
    key: Vec<u8>,
    conn: u64,
    most: u64,
}

impl Remote {
    /// `None` where exchanges are counted here.
    pub(super) fn new(config: &Config, setup: &Setup<'_>) -> Result<Option<Remote>, Invalid> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let Some(target) = config.redis.target(config.policy, setup.carry)? else { return Ok(None) };
        let ttl_s = match config.key_ttl {
            None => KEY_TTL_S,
            Some(ttl_s) => u64::try_from(ttl_s)
                .ok()
                .filter(|ttl_s| (1..=KEY_TTL_S_MAX).contains(ttl_s))
                .ok_or_else(|| {
                    Invalid::at(
                        "key_ttl",
                        format!("{ttl_s} is out of bounds; allowed: 1 to {KEY_TTL_S_MAX} seconds"),
                    )
                })?,
        };
        let Config { conn, burst, key, key_type, rules, .. } = config;
        let meaning = remote::digest(&format!("{conn:?} {burst:?} {key:?} {key_type:?} {rules:?}"));
        let prefix = format!("limit_conn:{}:{meaning:016x}:", setup.owner).into();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Some(Remote { target, prefix, ttl_ms: ttl_s * 1000, number }))
    }

    fn enter(&self, asked: &[Asked], member: u64) -> ScriptCall {
        let keys = asked.iter().map(|one| one.key.clone()).collect();
        let mut call = call(ENTER, keys, member, self.ttl_ms);
        call.args.extend(asked.iter().map(|one| one.most.to_string().into_bytes()));
        call
    }
}

fn call(script: Script, keys: Vec<Vec<u8>>, member: u64, ttl_ms: u64) -> ScriptCall {
    let args = vec![format!("{member:016x}").into_bytes(), ttl_ms.to_string().into_bytes()];
    ScriptCall { script, keys, args }
}

/// The exchanges of one limit that one worker has, to be renewed.
struct Members {
    outbound: SharedOutbound,
    target: Arc<RedisTarget>,
    ttl_ms: u64,
    live: RefCell<HashMap<u64, Sets>>,
    is_tended: Cell<bool>,
}

/// What an exchange is a member of.
struct Sets {
    keys: Vec<Vec<u8>>,
    /// Redis has said so. Renewing what it refuses would let it in.
    is_certain: bool,
}

thread_local! {
    /// The members of each limit on this worker.
    static MEMBERS: RefCell<HashMap<u64, Weak<Members>>> = RefCell::default();
}

impl Members {
    fn of(remote: &Remote, outbound: &SharedOutbound) -> Rc<Members> {
        MEMBERS.with_borrow_mut(|known| {
            if let Some(members) = known.get(&remote.number).and_then(Weak::upgrade) {
                return members;
            }
            let members = Rc::new(Members {
                outbound: outbound.clone(),
                target: remote.target.clone(),
                ttl_ms: remote.ttl_ms,
                live: RefCell::default(),
                is_tended: Cell::new(false),
            });
            known.retain(|_, members| members.strong_count() > 0);
            known.insert(remote.number, Rc::downgrade(&members));
            members
        })
    }

    fn tell(
        &self,
        script: Script,
        keys: Vec<Vec<u8>>,
        member: u64,
    ) -> Vec<LocalFuture<'static, RedisResult>> {
        let ask =
            |keys: Vec<Vec<u8>>| self.outbound.redis(&self.target, call(script, keys, member, self.ttl_ms));
        match self.target.place {
            // Keys may be on several servers.
            RedisPlace::Cluster(_) => keys.into_iter().map(|key| ask(vec![key])).collect(),
            _ => vec![ask(keys)],
        }
    }

    /// Renews what lives, as long as there is anything.
    async fn tend(self: Rc<Self>) {
        loop {
            self.outbound.sleep(Duration::from_millis((self.ttl_ms / 3).max(1))).await;
            if self.live.borrow().is_empty() {
                self.is_tended.set(false);
                return;
            }
            let certain = |(member, sets): (&u64, &Sets)| {
                (sets.is_certain && !sets.keys.is_empty()).then(|| (*member, sets.keys.clone()))
            };
            let live: Vec<_> = self.live.borrow().iter().filter_map(certain).collect();
            let calls: Vec<_> =
                live.into_iter().flat_map(|(member, keys)| self.tell(RENEW, keys, member)).collect();
            for call in calls {
                // One that could not be renewed is renewed the next time.
                let _ = call.await;
            }
        }
    }
}

/// An exchange that is a member until it is over, however that comes.
struct Member {
    members: Rc<Members>,
    number: u64,
}

impl Member {
    fn enter(members: Rc<Members>, number: u64, asked: &[Asked]) -> Member {
        let keys = asked.iter().map(|one| one.key.clone()).collect();
        members.live.borrow_mut().insert(number, Sets { keys, is_certain: false });
        if !members.is_tended.replace(true) {
            members.outbound.spawn(Box::pin(members.clone().tend()));
        }
        Member { members, number }
    }

    /// Only so many of the sets took it in.
    fn keep(&self, taken: usize) {
        if let Some(sets) = self.members.live.borrow_mut().get_mut(&self.number) {
            sets.keys.truncate(taken);
            sets.is_certain = true;
        }
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let sets = self.members.live.borrow_mut().remove(&self.number);
        let keys = sets.map(|sets| sets.keys).unwrap_or_default();
        if keys.is_empty() {
            return;
        }
        for call in self.members.tell(LEAVE, keys, self.number) {
            // It is on its way already. Where it does not arrive, the member expires.
            self.members.outbound.spawn(Box::pin(async move { drop(call.await) }));
        }
    }
}

impl LimitConn {
    /// Counts the exchange in Redis and waits as long as that asks for.
    pub(super) fn ask<'a>(&'a self, remote: &'a Remote, ex: &'a mut Exchange<'_>) -> Step<'a> {
        let Some(outbound) = ex.host.outbound() else { return Step::Respond(Response::status(500)) };
        let asked = with_scratch(|scratch| self.asked(remote, ex, scratch));
        if asked.is_empty() {
            return match self.allow_degradation {
                true => Step::Continue,
                false => Step::Respond(Response::status(500)),
            };
        }
        let at_once = if matches!(remote.target.place, RedisPlace::Cluster(_)) { 1 } else { asked.len() };
        let number = ex.host.random();
        let first = outbound.redis(&remote.target, remote.enter(&asked[..at_once], number));
        // A member from the moment it may be one: who goes away while waiting leaves as well.
        let member = Member::enter(Members::of(remote, &outbound), number, &asked);
        Step::Wait(Box::pin(async move {
            let entered = self.wait(remote, &outbound, &asked, at_once, number, first).await;
            match entered {
                Ok((taken, delay_s)) => {
                    member.keep(taken);
                    let is_full = taken < asked.len();
                    ex.leave(member);
                    if is_full {
                        return Step::Respond(self.rejected.clone());
                    }
                    if let Some(delay) = held_back(delay_s) {
                        outbound.sleep(delay).await;
                    }
                    Step::Continue
                }
                Err(fault) => {
                    if matches!(fault, RedisFault::Down | RedisFault::Busy) && at_once == asked.len() {
                        member.keep(0);
                    }
                    match remote::degrades(&outbound, self.allow_degradation) {
                        true => Step::Continue,
                        false => Step::Respond(Response::status(500)),
                    }
                }
            }
        }))
    }

    /// How many sets took the exchange in, and how many seconds it waits in all.
    async fn wait(
        &self,
        remote: &Remote,
        outbound: &SharedOutbound,
        asked: &[Asked],
        at_once: usize,
        number: u64,
        first: LocalFuture<'static, RedisResult>,
    ) -> Result<(usize, f64), RedisFault> {
        let mut answer = Some(first);
        let (mut taken, mut delay_s) = (0, 0.0);
        for some in asked.chunks(at_once) {
            let answer = answer.take();
            let answer = answer.unwrap_or_else(|| outbound.redis(&remote.target, remote.enter(some, number)));
            let told = remote::numbers(&answer.await?, 1)?;
            for (one, running) in some.iter().zip(told) {
                if running <= 0 {
                    return Ok((taken, delay_s));
                }
                taken += 1;
                delay_s += self.delay_s * ((running as u64 - 1) / one.conn) as f64;
            }
        }
        Ok((taken, delay_s))
    }

    fn asked(&self, remote: &Remote, ex: &Exchange<'_>, scratch: &mut Vec<u8>) -> Vec<Asked> {
        let mut asked = Vec::with_capacity(self.rules.len());
        for rule in &self.rules {
            scratch.clear();
            let has_key = rule.key.write(ex, scratch);
            let mut key = remote.prefix.as_bytes().to_vec();
            remote::write_key(scratch, &mut key);
            let (conn, burst) = (rule.conn.get(ex, scratch), rule.burst.get(ex, scratch));
            if let (Some(conn), Some(burst), true) = (conn, burst, has_key || !self.is_ruled) {
                asked.push(Asked { key, conn, most: conn.saturating_add(burst) });
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use serde_json::json;
    use yumen_plugin::Now;
    use yumen_plugin::outbound::{Outbound, RedisReply};

    use super::*;
    use crate::testing::Bench;

    /// A Redis that answers when the test says so, and time that passes likewise.
    #[derive(Default)]
    struct Held {
        asked: RefCell<Vec<Script>>,
        answer: Cell<Option<i64>>,
        is_time: Cell<bool>,
        tasks: RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>,
    }

    /// A node's way to it.
    struct Way(Rc<Held>);

    impl Outbound for Way {
        fn redis(&self, _: &Arc<RedisTarget>, call: ScriptCall) -> LocalFuture<'static, RedisResult> {
            self.0.asked.borrow_mut().push(call.script);
            let held = self.0.clone();
            Box::pin(std::future::poll_fn(move |_| match held.answer.get() {
                Some(told) => Poll::Ready(Ok(RedisReply::Array(vec![RedisReply::Integer(told)]))),
                None => Poll::Pending,
            }))
        }

        fn spawn(&self, task: LocalFuture<'static, ()>) {
            self.0.tasks.borrow_mut().push(task);
        }

        fn sleep(&self, _: Duration) -> LocalFuture<'static, ()> {
            let held = self.0.clone();
            Box::pin(std::future::poll_fn(move |_| match held.is_time.take() {
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
        /// Lets the time pass after which members are renewed; what was asked for since the last time.
        fn renewal(&self) -> Vec<Script> {
            self.is_time.set(true);
            let mut tasks = self.tasks.take();
            tasks.retain_mut(|task| task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            self.tasks.borrow_mut().extend(tasks);
            self.asked.take()
        }
    }

    #[test]
    fn only_what_redis_has_let_in_is_renewed() {
        let held = Rc::new(Held::default());
        let mut bench = Bench::new();
        bench.host.outbound = Some(Rc::new(Way(held.clone())));
        let settings = json!({"conn": 1, "burst": 0, "default_conn_delay": 0.1, "key": "host",
            "policy": "redis", "redis_host": "redis"});
        let plugin = bench.plugin("limit-conn", settings);
        let mut ex = bench.exchange("GET / HTTP/1.1");
        let Step::Wait(mut asked) = plugin.access(&mut ex) else { panic!("Redis is asked") };
        let mut cx = Context::from_waker(Waker::noop());
        assert!(asked.as_mut().poll(&mut cx).is_pending());
        assert_eq!(held.renewal(), [ENTER], "whether it is let in is not known");
        held.answer.set(Some(1));
        assert!(matches!(asked.as_mut().poll(&mut cx), Poll::Ready(Step::Continue)));
        drop(asked);
        assert_eq!(held.renewal(), [RENEW]);
    }
}
