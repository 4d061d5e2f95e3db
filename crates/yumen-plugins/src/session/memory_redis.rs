//! A Redis in memory for tests: the scripts of sessions on a table of values without ends.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest;
use yumen_plugin::Now;
use yumen_plugin::background::{
    BackgroundHost, RedisFault, RedisReply, RedisResult, RedisScript, RedisScriptCall, RedisTarget,
};
use yumen_plugin::plugin::LocalFuture;

use super::redis::{DELETE, GET, INDEX, MEMBERS, SET, UNLOCK};
pub(crate) use super::redis::{LOCK, RENEW, REPLACE};
use super::store::hex_of;

/// A change of the values by another node.
type OtherNode = Box<dyn FnOnce(&mut BTreeMap<String, Vec<u8>>)>;

#[derive(Default)]
pub(crate) struct MemoryRedis {
    pub(crate) values: RefCell<BTreeMap<String, Vec<u8>>>,
    /// Whether locks fail as without a connection.
    pub(crate) has_no_locks: Cell<bool>,
    /// Time of the last lock in milliseconds.
    pub(crate) locked_ms: Cell<u64>,
    /// The time of tasks of the node.
    pub(crate) now: Cell<Now>,
    /// Runs before the next call of this script.
    pub(crate) before: RefCell<Option<(RedisScript, OtherNode)>>,
}

/// The connection of a node.
pub(crate) struct MemoryRedisClient(pub(crate) Rc<MemoryRedis>);

impl MemoryRedis {
    /// The keys of sessions and locks.
    pub(crate) fn keys(&self) -> Vec<String> {
        self.values.borrow().keys().cloned().collect()
    }

    fn run(&self, call: &RedisScriptCall) -> RedisResult {
        let due = self.before.borrow_mut().take_if(|(script, _)| *script == call.script);
        if let Some((_, change)) = due {
            change(&mut self.values.borrow_mut());
        }
        if self.has_no_locks.get() && call.script == LOCK {
            return Err(RedisFault::Down);
        }
        if call.script == LOCK {
            self.locked_ms.set(String::from_utf8_lossy(&call.args[1]).parse().expect("milliseconds"));
        }
        let key = String::from_utf8(call.keys[0].clone()).expect("keys are text");
        let mut values = self.values.borrow_mut();
        let found = values.get(&key).cloned();
        let written = || call.args[0].clone();
        let done = Ok(RedisReply::Text(b"OK".to_vec()));
        match (call.script, found) {
            (GET, found) => Ok(found.map_or(RedisReply::Nil, RedisReply::Text)),
            (DELETE, found) => {
                values.remove(&key);
                Ok(RedisReply::Integer(i64::from(found.is_some())))
            }
            (LOCK, Some(_)) | (RENEW | REPLACE, None) => Ok(RedisReply::Nil),
            (REPLACE, Some(found)) if hex(&found).as_bytes() != call.args[2] => Ok(RedisReply::Integer(0)),
            (INDEX, found) => {
                let members = [found.unwrap_or_default(), written()].concat();
                values.insert(key, [members, b" ".to_vec()].concat());
                Ok(RedisReply::Integer(1))
            }
            (MEMBERS, found) => {
                let found = found.unwrap_or_default();
                let members = found.split(|byte| *byte == b' ').filter(|member| !member.is_empty());
                Ok(RedisReply::Array(members.map(|member| RedisReply::Text(member.to_vec())).collect()))
            }
            (UNLOCK, found) if found != Some(written()) => Ok(RedisReply::Integer(0)),
            (UNLOCK, _) => {
                values.remove(&key);
                Ok(RedisReply::Integer(1))
            }
            (SET | LOCK | RENEW | REPLACE, _) => {
                values.insert(key, written());
                done
            }
            (other, _) => panic!("unknown script {}", other.text),
        }
    }
}

fn hex(value: &[u8]) -> String {
    hex_of(digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, value).as_ref())
}

impl BackgroundHost for MemoryRedisClient {
    fn redis(&self, _: &Arc<RedisTarget>, call: RedisScriptCall) -> LocalFuture<'static, RedisResult> {
        let reply = self.0.run(&call);
        Box::pin(std::future::ready(reply))
    }

    fn spawn(&self, task: LocalFuture<'static, ()>) {
        crate::testing::ready(task);
    }

    fn sleep(&self, _: Duration) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn now(&self) -> Now {
        self.0.now.get()
    }

    fn count_degraded(&self) {}
}
