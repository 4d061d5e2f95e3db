//! Leaky buckets in Redis: one script call per request, by the clock of the Redis server.

use std::sync::Arc;

use yumen_config::schema::InvalidSettings;
use yumen_plugin::background::{RedisFault, RedisScript, RedisScriptCall, RedisTarget};
use yumen_plugin::{Exchange, LocalResponse, PluginBuildContext, Step};

use super::{LimitReq, LimitReqSettings};
use crate::limits::{delay_of, remote, with_scratch};

/// Stores the time at which the bucket is empty, in microseconds. Returns the excess over the rate in
/// thousandths of a request, or -1 above the burst.
const POUR: RedisScript = RedisScript {
    text: "\
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local ahead_us = math.max(tonumber(redis.call('GET', KEYS[1]) or '0') - now_us, 0)
local excess = math.floor(ahead_us * rate / 1000)
if excess > burst * 1000 then return -1 end
local full_us = ahead_us + 1000000 / rate
local expiry_ms = math.min(math.ceil(full_us / 1000), tonumber(ARGV[3]))
redis.call('SET', KEYS[1], string.format('%.3f', now_us + full_us), 'PX', expiry_ms)
return excess",
};

/// The Redis buckets of one limit.
pub(crate) struct LimitReqRedis {
    target: Arc<RedisTarget>,
    /// Common prefix of all keys of the limit.
    prefix: Box<str>,
    allow_degradation: bool,
}

impl LimitReqRedis {
    /// `None` with the policy `local`.
    pub(super) fn new(
        config: &LimitReqSettings,
        setup: &PluginBuildContext<'_>,
    ) -> Result<Option<LimitReqRedis>, InvalidSettings> {
        let Some(target) = config.redis.target(config.policy, setup.carry)? else { return Ok(None) };
        let meaning = remote::digest(&super::meaning(config));
        let prefix = format!("limit_req:{}:{meaning:016x}:", setup.owner).into();
        Ok(Some(LimitReqRedis { target, prefix, allow_degradation: config.allow_degradation }))
    }

    fn call(&self, plugin: &LimitReq, ex: &Exchange<'_>) -> RedisScriptCall {
        let mut key = self.prefix.as_bytes().to_vec();
        with_scratch(|scratch| {
            plugin.key.write(ex, scratch);
            remote::write_key(scratch, &mut key);
        });
        let number = |number: f64| number.to_string().into_bytes();
        let expiry_ms = (remote::EXPIRY_S_MAX * 1000).to_string().into_bytes();
        let args = vec![number(plugin.pace.rate), number(plugin.pace.burst), expiry_ms];
        RedisScriptCall { script: POUR, keys: vec![key], args }
    }
}

impl LimitReq {
    /// Adds the request to its bucket and waits for the resulting delay.
    pub(super) fn ask<'a>(&'a self, remote: &'a LimitReqRedis, ex: &'a mut Exchange<'_>) -> Step<'a> {
        // Only the host of a dry run has no connections.
        let Some(outbound) = ex.host.outbound() else { return Step::Respond(LocalResponse::status(500)) };
        // The call is in flight before the returned future is polled.
        let answer = outbound.redis(&remote.target, remote.call(self, ex));
        Step::Wait(Box::pin(async move {
            let verdict = |reply: yumen_plugin::background::RedisReply| {
                let none = || RedisFault::Refused("the bucket holds something that is none".to_owned());
                reply.integer().ok_or_else(none)
            };
            let excess = match answer.await.and_then(verdict) {
                Ok(excess) => excess,
                Err(_) if remote::degrades(&outbound, remote.allow_degradation) => return Step::Continue,
                Err(_) => return Step::Respond(LocalResponse::status(500)),
            };
            if excess < 0 {
                return Step::Respond(self.rejected.clone());
            }
            if let Some(delay) = delay_of(excess as f64 / 1000.0 / self.pace.rate).filter(|_| self.waits) {
                outbound.sleep(delay).await;
            }
            Step::Continue
        }))
    }
}
