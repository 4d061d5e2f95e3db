//! Request counts in Redis: one script call per request counts and decides in one step.
//!
//! A fixed window of a group has the key and the value that APISIX uses, so that both gateways can share it.
//! The same holds for a sliding window outside a cluster; inside one, its two keys must be in one slot.

use std::sync::Arc;

use yumen_config::schema::InvalidSettings;
use yumen_plugin::background::{
    RedisFault, RedisReply, RedisResult, RedisScript, RedisScriptCall, RedisTarget, RedisTopology,
};
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{Exchange, LocalResponse, PluginBuildContext, SharedOutbound, Step};

use super::window::{SlidingMoment, WindowDecision, verdict_fixed};
use super::{LimitCount, LimitCountSettings, WindowType};
use crate::limits::{remote, with_scratch};

/// Counts in fixed windows until one is full. A window begins with its first request.
pub(super) const FIXED: RedisScript = RedisScript {
    text: "\
local told = {}
for i, key in ipairs(KEYS) do
  local limit, window_s, cost = tonumber(ARGV[3*i-2]), ARGV[3*i-1], ARGV[3*i]
  local count = tonumber(cost)
  local left_ms = redis.call('PTTL', key)
  if left_ms < 0 then
    redis.call('SET', key, cost, 'EX', window_s)
    left_ms = window_s * 1000
  else
    count = redis.call('INCRBY', key, cost)
  end
  told[2*i-1] = count
  told[2*i] = left_ms
  if count > limit then break end
end
return told",
};

/// Counts in sliding windows until one is full. Each has two keys: the current and the previous window.
const SLIDING: RedisScript = RedisScript {
    text: "\
local told = {}
for i = 1, #KEYS / 2 do
  local limit, length_ms, left_ms = tonumber(ARGV[3*i-2]), tonumber(ARGV[3*i-1]), tonumber(ARGV[3*i])
  local count = tonumber(redis.call('GET', KEYS[2*i-1]) or '0')
  local before = math.min(tonumber(redis.call('GET', KEYS[2*i]) or '0'), limit)
  local fits = count < limit and before / length_ms * left_ms + count < limit
  if fits and redis.call('INCRBY', KEYS[2*i-1], 1) == 1 then
    redis.call('PEXPIRE', KEYS[2*i-1], 2 * length_ms)
  end
  told[3*i-2] = fits and 1 or 0
  told[3*i-1] = count
  told[3*i] = before
  if not fits then break end
end
return told",
};

/// The Redis counters of one limit.
pub(crate) struct LimitCountRedis {
    pub(super) target: Arc<RedisTarget>,
    /// Common part of all keys of the limit.
    pub(super) id: Box<str>,
    window_type: WindowType,
}

/// A rule that applies to a request, with its key and limit.
struct LimitCountQuery {
    rule: usize,
    key: Vec<u8>,
    limit: u64,
    window_s: u64,
}

impl LimitCountRedis {
    /// `None` with the policy `local`.
    pub(super) fn new(
        config: &LimitCountSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Option<LimitCountRedis>, InvalidSettings> {
        let Some(target) = config.redis.target(config.policy, setup.carry)? else { return Ok(None) };
        let id = match &config.group {
            Some(group) => group.clone(),
            // Changed settings get new counters, the same ones on all nodes.
            None => format!("{}:{:016x}", setup.owner, remote::digest(&super::meaning(config))),
        };
        Ok(Some(LimitCountRedis { target, id: id.into(), window_type: config.window_type }))
    }

    /// Whether scripts may use one key only, because the keys may be on several servers.
    fn needs_single_key_scripts(&self) -> bool {
        matches!(self.target.topology, RedisTopology::Cluster(_))
    }

    /// The Redis key of a fixed window.
    pub(super) fn fixed_key(&self, written: &[u8]) -> Vec<u8> {
        let mut key = format!("plugin-limit-count:v1:{}:", self.id).into_bytes();
        remote::write_key(written, &mut key);
        key
    }

    /// The Redis key of a sliding window with this number.
    pub(super) fn sliding_key(&self, written: &[u8], number: u64) -> Vec<u8> {
        let mut key = format!("plugin-limit-count:{}:", self.id).into_bytes();
        remote::write_key(written, &mut key);
        if self.needs_single_key_scripts() {
            // Redis Cluster hashes the part in braces, so both windows are in one slot.
            key.insert(0, b'{');
            key.push(b'}');
        }
        key.extend_from_slice(format!(".{number}.counter").as_bytes());
        key
    }

    fn call(&self, queries: &[LimitCountQuery], unix_ms: u64) -> RedisScriptCall {
        let number = |number: u64| number.to_string().into_bytes();
        let (mut keys, mut args) = (Vec::new(), Vec::new());
        for one in queries {
            match self.window_type {
                WindowType::Fixed => {
                    keys.push(self.fixed_key(&one.key));
                    args.extend([number(one.limit), number(one.window_s), number(1)]);
                }
                WindowType::Sliding => {
                    let length_ms = one.window_s * 1000;
                    let current = unix_ms / length_ms;
                    keys.push(self.sliding_key(&one.key, current));
                    keys.push(self.sliding_key(&one.key, current.saturating_sub(1)));
                    args.extend([number(one.limit), number(length_ms), number(left_ms(length_ms, unix_ms))]);
                }
            }
        }
        let script = if self.window_type == WindowType::Fixed { FIXED } else { SLIDING };
        RedisScriptCall { script, keys, args }
    }

    /// The decisions of the evaluated rules, in order.
    fn verdicts(
        &self,
        queries: &[LimitCountQuery],
        unix_ms: u64,
        reply: &RedisReply,
    ) -> Result<Vec<WindowDecision>, RedisFault> {
        let count = |number: i64| u64::try_from(number).unwrap_or(0);
        if self.window_type == WindowType::Fixed {
            let numbers = remote::numbers(reply, 2)?;
            let verdict = |(one, numbers): (&LimitCountQuery, &[i64])| {
                verdict_fixed(one.limit, count(numbers[0]), count(numbers[1]))
            };
            return Ok(queries.iter().zip(numbers.chunks_exact(2)).map(verdict).collect());
        }
        let numbers = remote::numbers(reply, 3)?;
        let verdict = |(one, numbers): (&LimitCountQuery, &[i64])| {
            let length_ms = one.window_s * 1000;
            let left_ms = left_ms(length_ms, unix_ms);
            let moment =
                SlidingMoment { limit: one.limit, length_ms, left_ms, before: count(numbers[2]) as f64 };
            moment.verdict(if numbers[0] == 1 { Ok(count(numbers[1])) } else { Err(count(numbers[1])) })
        };
        Ok(queries.iter().zip(numbers.chunks_exact(3)).map(verdict).collect())
    }
}

/// Time until the current window ends.
pub(super) fn left_ms(length_ms: u64, unix_ms: u64) -> u64 {
    length_ms - unix_ms % length_ms
}

impl LimitCount {
    /// Counts the request in Redis and waits for the decision.
    pub(super) fn ask<'a>(&'a self, remote: &'a LimitCountRedis, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // Only the host of a dry run has no connections.
        let Some(outbound) = ex.host.outbound() else { return Step::Respond(failed()) };
        let queries = match with_scratch(|scratch| self.queries(ex, scratch)) {
            Some(queries) => queries,
            None => return self.degrade(ex).map_or_else(Step::Respond, |()| Step::Continue),
        };
        let unix_ms = ex.now.unix_ms;
        let at_once = if remote.needs_single_key_scripts() { 1 } else { queries.len() };
        // The call is in flight before the returned future is polled.
        let first = outbound.redis(&remote.target, remote.call(&queries[..at_once], unix_ms));
        Step::Wait(Box::pin(self.wait(remote, ex, outbound, queries, at_once, first)))
    }

    async fn wait<'a>(
        &'a self,
        remote: &'a LimitCountRedis,
        ex: &'a mut Exchange<'_>,
        outbound: SharedOutbound,
        queries: Vec<LimitCountQuery>,
        at_once: usize,
        first: LocalFuture<'static, RedisResult>,
    ) -> Step<'a> {
        let unix_ms = ex.now.unix_ms;
        let mut answer = Some(first);
        // `ask` has sent the call of the first chunk.
        for some in queries.chunks(at_once) {
            let answer =
                answer.take().unwrap_or_else(|| outbound.redis(&remote.target, remote.call(some, unix_ms)));
            let verdicts = answer.await.and_then(|reply| remote.verdicts(some, unix_ms, &reply));
            let verdicts = match verdicts {
                Ok(verdicts) => verdicts,
                Err(_) if remote::degrades(&outbound, self.allow_degradation) => return Step::Continue,
                Err(_) => return Step::Respond(failed()),
            };
            for (one, verdict) in some.iter().zip(verdicts) {
                if self.shows_quota {
                    self.rules[one.rule].names.set(&mut ex.response.fields, one.limit, &verdict);
                }
                if !verdict.admitted {
                    return Step::Respond(self.rejected.clone());
                }
            }
        }
        Step::Continue
    }

    /// The rules that apply; `None` if there are none or one has an invalid amount.
    fn queries(&self, ex: &Exchange<'_>, scratch: &mut Vec<u8>) -> Option<Vec<LimitCountQuery>> {
        let mut queries = Vec::with_capacity(self.rules.len());
        for (at, rule) in self.rules.iter().enumerate() {
            scratch.clear();
            if !self.write_key(at, ex, scratch) {
                continue;
            }
            let key = scratch.clone();
            let limit = rule.count.get(ex, scratch)?;
            let window_s = rule.time_window_s.get(ex, scratch)?.min(remote::EXPIRY_S_MAX);
            queries.push(LimitCountQuery { rule: at, key, limit, window_s });
        }
        (!queries.is_empty()).then_some(queries)
    }
}

/// The response if Redis fails and requests may not pass.
fn failed() -> LocalResponse {
    LocalResponse::error_msg(500, "failed to limit count")
}
