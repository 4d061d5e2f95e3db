//! Concurrent exchanges counted in Redis: each exchange is a member of the sorted set of its key.
//!
//! Members expire, so that those of a node that died do not remain; a live node renews its members in time.
//! Removals run in the background and are repeated until Redis confirms them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use yumen_config::schema::InvalidSettings;
use yumen_plugin::background::{
    RedisFault, RedisResult, RedisScript, RedisScriptCall, RedisTarget, RedisTopology,
};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{Exchange, LocalResponse, PluginBuildContext, PluginFactory, SharedOutbound, Step};

use super::{LimitConn, LimitConnSettings};
use crate::limits::{delay_of, remote, undecided, with_scratch};

/// Adds a member to each set until one is full. Returns the size of each set, 0 for the full one. Scores are
/// the expiry times of the members, in milliseconds of Redis' clock.
const ENTER: RedisScript = RedisScript {
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

const RENEW: RedisScript = RedisScript {
    text: "\
local time = redis.call('TIME')
local now_ms = time[1] * 1000 + math.floor(time[2] / 1000)
for _, key in ipairs(KEYS) do
  redis.call('ZADD', key, now_ms + ARGV[2], ARGV[1])
  redis.call('PEXPIRE', key, ARGV[2])
end
return 0",
};

const LEAVE: RedisScript = RedisScript {
    text: "\
for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end
return 0",
};

/// Interval between two attempts of unconfirmed removals.
const AGAIN_EVERY: Duration = Duration::from_secs(1);
/// Most removals in flight at once when they are repeated.
const AGAIN_BATCH: usize = 1000;
/// Most unconfirmed removals per limit and worker. The oldest are dropped beyond this; their members expire.
const OWED_MAX: usize = 1 << 16;
/// Confirmations that a removal needs if an earlier call was aborted: that call may still arrive, on another
/// connection, and add the member again.
const HEARD_WHEN_UNCERTAIN: u8 = 3;

/// Expiry of members in seconds without `key_ttl`.
const KEY_TTL_S: u64 = 3600;
const KEY_TTL_S_MAX: u64 = 10 * 365 * 86_400;

/// The Redis counters of one limit.
pub(crate) struct LimitConnRedis {
    target: Arc<RedisTarget>,
    /// Common prefix of all keys of the limit.
    prefix: Box<str>,
    ttl_ms: u64,
    /// Process-wide number of the limit, for [`MEMBERS`].
    number: u64,
}

/// A rule that applies to an exchange, with its key and limits.
struct LimitConnQuery {
    key: Vec<u8>,
    conn: u64,
    most: u64,
}

impl LimitConnRedis {
    /// `None` with the policy `local`.
    pub(super) fn new(
        config: &LimitConnSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Option<LimitConnRedis>, InvalidSettings> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let Some(target) = config.redis.target(config.policy, setup.carry)? else { return Ok(None) };
        let ttl_s = match config.key_ttl {
            None => KEY_TTL_S,
            Some(ttl_s) => u64::try_from(ttl_s)
                .ok()
                .filter(|ttl_s| (1..=KEY_TTL_S_MAX).contains(ttl_s))
                .ok_or_else(|| {
                    InvalidSettings::at(
                        "key_ttl",
                        format!("{ttl_s} is out of bounds; allowed: 1 to {KEY_TTL_S_MAX} seconds"),
                    )
                })?,
        };
        let meaning = remote::digest(&super::meaning(config));
        let prefix = format!("limit_conn:{}:{meaning:016x}:", setup.owner).into();
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Ok(Some(LimitConnRedis { target, prefix, ttl_ms: ttl_s * 1000, number }))
    }

    fn enter(&self, queries: &[LimitConnQuery], member: u64) -> RedisScriptCall {
        let keys = queries.iter().map(|one| one.key.clone()).collect();
        let mut call = call(ENTER, keys, member, self.ttl_ms);
        call.args.extend(queries.iter().map(|one| one.most.to_string().into_bytes()));
        call
    }
}

fn call(script: RedisScript, keys: Vec<Vec<u8>>, member: u64, ttl_ms: u64) -> RedisScriptCall {
    let args = vec![format!("{member:016x}").into_bytes(), ttl_ms.to_string().into_bytes()];
    RedisScriptCall { script, keys, args }
}

/// The members of one limit on one worker, to be renewed and removed.
struct MembershipRenewer {
    outbound: SharedOutbound,
    target: Arc<RedisTarget>,
    ttl_ms: u64,
    live: RefCell<HashMap<u64, MemberSets>>,
    is_tended: Cell<bool>,
    /// Removals that Redis has not confirmed.
    owed: RefCell<VecDeque<MemberRemoval>>,
    /// Whether a task that repeats these removals is running.
    is_flushing: Cell<bool>,
}

/// The removal of a member.
struct MemberRemoval {
    member: u64,
    keys: Vec<Vec<u8>>,
    /// Confirmations that are still required.
    times: u8,
    /// Expiry of the member, in milliseconds of the monotonic clock.
    until_ms: u64,
}

/// The sets that an exchange is a member of.
struct MemberSets {
    keys: Vec<Vec<u8>>,
    /// Redis has confirmed the membership. Renewing a refused one would add it.
    is_confirmed: bool,
    /// A call that adds the member may still arrive although its result is not awaited any more.
    is_in_flight: bool,
}

thread_local! {
    /// The renewers of this worker, by number of the limit.
    static MEMBERS: RefCell<HashMap<u64, Weak<MembershipRenewer>>> = RefCell::default();
}

impl MembershipRenewer {
    fn of(remote: &LimitConnRedis, outbound: &SharedOutbound) -> Rc<MembershipRenewer> {
        MEMBERS.with_borrow_mut(|known| {
            if let Some(members) = known.get(&remote.number).and_then(Weak::upgrade) {
                return members;
            }
            let members = Rc::new(MembershipRenewer {
                outbound: outbound.clone(),
                target: remote.target.clone(),
                ttl_ms: remote.ttl_ms,
                live: RefCell::default(),
                is_tended: Cell::new(false),
                owed: RefCell::default(),
                is_flushing: Cell::new(false),
            });
            // Renewers of replaced settings leave dead entries behind.
            known.retain(|_, members| members.strong_count() > 0);
            known.insert(remote.number, Rc::downgrade(&members));
            members
        })
    }

    fn calls(
        &self,
        script: RedisScript,
        keys: Vec<Vec<u8>>,
        member: u64,
    ) -> Vec<LocalFuture<'static, RedisResult>> {
        let ask =
            |keys: Vec<Vec<u8>>| self.outbound.redis(&self.target, call(script, keys, member, self.ttl_ms));
        match self.target.topology {
            // The keys may be on several servers.
            RedisTopology::Cluster(_) => keys.into_iter().map(|key| ask(vec![key])).collect(),
            _ => vec![ask(keys)],
        }
    }

    /// Renews confirmed members until none is left.
    async fn tend(self: Rc<Self>) {
        loop {
            self.outbound.sleep(Duration::from_millis((self.ttl_ms / 3).max(1))).await;
            if self.live.borrow().is_empty() {
                self.is_tended.set(false);
                return;
            }
            let confirmed = |(member, sets): (&u64, &MemberSets)| {
                (sets.is_confirmed && !sets.keys.is_empty()).then(|| (*member, sets.keys.clone()))
            };
            let live: Vec<_> = self.live.borrow().iter().filter_map(confirmed).collect();
            let renew = |(member, keys)| {
                self.calls(RENEW, keys, member)
                    .into_iter()
                    .map(move |call| (member, call))
                    .collect::<Vec<_>>()
            };
            let renewals: Vec<_> = live.into_iter().flat_map(renew).collect();
            for (member, call) in renewals {
                // A failed renewal is repeated in the next interval; two of them fit into the lifetime.
                if call.await.is_err()
                    && let Some(sets) = self.live.borrow_mut().get_mut(&member)
                {
                    // A failed call may still arrive and add the member after its removal.
                    sets.is_in_flight = true;
                }
            }
        }
    }

    /// Starts the removal of a member in the background.
    fn leave(self: &Rc<Self>, leave: MemberRemoval) {
        for removal in self.send_removal(leave) {
            let members = self.clone();
            self.outbound.spawn(Box::pin(async move {
                if let Some(left) = removal.await.0 {
                    members.owe(left);
                }
            }));
        }
    }

    /// Sends a removal to each server. Each future returns the removal if it must be repeated, and whether it
    /// was confirmed.
    fn send_removal(&self, leave: MemberRemoval) -> Vec<LocalFuture<'static, (Option<MemberRemoval>, bool)>> {
        let MemberRemoval { member, keys, times, until_ms } = leave;
        let each: Vec<Vec<Vec<u8>>> = match self.target.topology {
            RedisTopology::Cluster(_) => keys.into_iter().map(|key| vec![key]).collect(),
            _ => vec![keys],
        };
        let calls = |keys: Vec<Vec<u8>>| -> LocalFuture<'static, (Option<MemberRemoval>, bool)> {
            let call = self.outbound.redis(&self.target, call(LEAVE, keys.clone(), member, self.ttl_ms));
            Box::pin(async move {
                let is_confirmed = call.await.is_ok();
                let times = times - u8::from(is_confirmed);
                ((times > 0).then_some(MemberRemoval { member, keys, times, until_ms }), is_confirmed)
            })
        };
        each.into_iter().map(calls).collect()
    }

    /// Queues a removal for repetition and starts the task that repeats them.
    #[cold]
    fn owe(self: &Rc<Self>, leave: MemberRemoval) {
        let mut owed = self.owed.borrow_mut();
        if owed.len() >= OWED_MAX {
            owed.pop_front();
        }
        owed.push_back(leave);
        if !self.is_flushing.replace(true) {
            self.outbound.spawn(Box::pin(self.clone().settle()));
        }
    }

    /// Repeats removals until Redis has confirmed all of them, or their members have expired.
    async fn settle(self: Rc<Self>) {
        while !self.owed.borrow().is_empty() {
            self.outbound.sleep(AGAIN_EVERY).await;
            let now_ms = self.outbound.now().mono_ms();
            let mut due = self.owed.take();
            due.retain(|leave| leave.until_ms > now_ms);
            while !due.is_empty() {
                let later = due.split_off(due.len().min(AGAIN_BATCH));
                // All calls of a batch are in flight before the first is awaited.
                let calls: Vec<_> = due.into_iter().flat_map(|leave| self.send_removal(leave)).collect();
                let mut is_confirmed = false;
                for one in calls {
                    let (left, is_one_confirmed) = one.await;
                    is_confirmed |= is_one_confirmed;
                    self.owed.borrow_mut().extend(left);
                }
                due = later;
                // Redis confirmed nothing of this batch: the remaining batches wait for the next interval.
                if !is_confirmed {
                    self.owed.borrow_mut().append(&mut due);
                }
            }
        }
        self.is_flushing.set(false);
    }
}

/// An exchange that is a member of its sets until it is dropped.
struct RedisMember {
    members: Rc<MembershipRenewer>,
    number: u64,
}

impl RedisMember {
    fn enter(members: Rc<MembershipRenewer>, number: u64, queries: &[LimitConnQuery]) -> RedisMember {
        let keys = queries.iter().map(|one| one.key.clone()).collect();
        members
            .live
            .borrow_mut()
            .insert(number, MemberSets { keys, is_confirmed: false, is_in_flight: true });
        if !members.is_tended.replace(true) {
            members.outbound.spawn(Box::pin(members.clone().tend()));
        }
        RedisMember { members, number }
    }

    /// Records that only the first `taken` sets admitted the exchange.
    fn keep(&self, taken: usize) {
        if let Some(sets) = self.members.live.borrow_mut().get_mut(&self.number) {
            sets.keys.truncate(taken);
            (sets.is_confirmed, sets.is_in_flight) = (true, false);
        }
    }
}

impl Drop for RedisMember {
    fn drop(&mut self) {
        let sets = self.members.live.borrow_mut().remove(&self.number);
        let Some(MemberSets { keys, is_in_flight, .. }) = sets.filter(|sets| !sets.keys.is_empty()) else {
            return;
        };
        let times = if is_in_flight { HEARD_WHEN_UNCERTAIN } else { 1 };
        let until_ms = self.members.outbound.now().mono_ms().saturating_add(self.members.ttl_ms);
        self.members.leave(MemberRemoval { member: self.number, keys, times, until_ms });
    }
}

impl LimitConn {
    /// Counts the exchange in Redis and waits for the resulting delay.
    pub(super) fn ask<'a>(&'a self, remote: &'a LimitConnRedis, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // Only the host of a dry run has no connections.
        let Some(outbound) = ex.host.outbound() else { return Step::Respond(LocalResponse::status(500)) };
        let queries = with_scratch(|scratch| self.queries(remote, ex, scratch));
        if queries.is_empty() {
            let passes = undecided(ex, Self::NAME, &self.owner, self.allow_degradation);
            return passes.map_or_else(Step::Respond, |()| Step::Continue);
        }
        // In a cluster the keys may be on different servers, so each is sent separately.
        let at_once =
            if matches!(remote.target.topology, RedisTopology::Cluster(_)) { 1 } else { queries.len() };
        let number = ex.host.random();
        let first = outbound.redis(&remote.target, remote.enter(&queries[..at_once], number));
        // A member from now on, so that an exchange that ends while it waits is removed as well.
        let member = RedisMember::enter(MembershipRenewer::of(remote, &outbound), number, &queries);
        Step::Wait(Box::pin(async move {
            let entered = self.wait(remote, &outbound, &queries, at_once, number, first).await;
            match entered {
                Ok((taken, delay_s)) => {
                    member.keep(taken);
                    let is_full = taken < queries.len();
                    ex.leave(member);
                    if is_full {
                        return Step::Respond(self.rejected.clone());
                    }
                    if let Some(delay) = delay_of(delay_s) {
                        outbound.sleep(delay).await;
                    }
                    Step::Continue
                }
                Err(fault) => {
                    // With these faults nothing was sent, so there is no member to remove.
                    if matches!(fault, RedisFault::Down | RedisFault::Busy) && at_once == queries.len() {
                        member.keep(0);
                    }
                    match remote::degrades(&outbound, self.allow_degradation) {
                        true => Step::Continue,
                        false => Step::Respond(LocalResponse::status(500)),
                    }
                }
            }
        }))
    }

    /// The number of sets that admitted the exchange, and the total delay in seconds.
    async fn wait(
        &self,
        remote: &LimitConnRedis,
        outbound: &SharedOutbound,
        queries: &[LimitConnQuery],
        at_once: usize,
        number: u64,
        first: LocalFuture<'static, RedisResult>,
    ) -> Result<(usize, f64), RedisFault> {
        let mut answer = Some(first);
        let (mut taken, mut delay_s) = (0, 0.0);
        for some in queries.chunks(at_once) {
            let answer = answer.take();
            let answer = answer.unwrap_or_else(|| outbound.redis(&remote.target, remote.enter(some, number)));
            let numbers = remote::numbers(&answer.await?, 1)?;
            for (one, running) in some.iter().zip(numbers) {
                // This set is full; the sets before it contain the member.
                if running <= 0 {
                    return Ok((taken, delay_s));
                }
                taken += 1;
                delay_s += self.delay_s * ((running as u64 - 1) / one.conn) as f64;
            }
        }
        Ok((taken, delay_s))
    }

    fn queries(
        &self,
        remote: &LimitConnRedis,
        ex: &Exchange<'_>,
        scratch: &mut Vec<u8>,
    ) -> Vec<LimitConnQuery> {
        let mut queries = Vec::with_capacity(self.rules.len());
        for (at, rule) in self.rules.iter().enumerate() {
            scratch.clear();
            let has_key = self.write_key(at, ex, scratch);
            let mut key = remote.prefix.as_bytes().to_vec();
            remote::write_key(scratch, &mut key);
            let (conn, burst) = (rule.conn.get(ex, scratch), rule.burst.get(ex, scratch));
            if let (Some(conn), Some(burst), true) = (conn, burst, has_key || !self.is_ruled) {
                queries.push(LimitConnQuery { key, conn, most: conn.saturating_add(burst) });
            }
        }
        queries
    }
}

#[cfg(test)]
mod tests;
