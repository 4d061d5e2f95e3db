//! Which server is the master now: what sentinels say.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use yumen_plugin::background::{RedisAddress, RedisFault, RedisLogin, RedisReply, RedisTarget};

use crate::RedisRuntime;
use crate::connect::{self, Stream};

/// Those who keep watch over a master.
pub(crate) struct SentinelSet {
    /// The name they know it by.
    master_name: String,
    login: RedisLogin,
    /// In the order in which they are asked: who led to the master the last time comes first.
    order: RefCell<VecDeque<RedisAddress>>,
}

impl SentinelSet {
    pub(crate) fn new(named: &[RedisAddress], master_name: &str, login: &RedisLogin) -> SentinelSet {
        let order = RefCell::new(named.iter().cloned().collect());
        SentinelSet { master_name: master_name.to_owned(), login: login.clone(), order }
    }

    /// A connection to the master, by the first sentinel whose word proves true. One that does not answer
    /// may take its share of the target's time and no more, so that the next one is asked within it. Does
    /// not look at the time of connecting to the master: where that takes all of it, another sentinel is
    /// the first of the next attempt.
    pub(crate) async fn connect(
        &self,
        tools: &RedisRuntime,
        target: &RedisTarget,
    ) -> Result<Stream, RedisFault> {
        let count = self.order.borrow().len();
        let share = Duration::from_millis((target.timeout_ms / (count as u64 + 1)).max(1));
        let mut tried: Vec<RedisAddress> = Vec::new();
        let mut faults: Vec<String> = Vec::new();
        for _ in 0..count {
            let Some(sentinel) = self.next() else { break };
            let named = tokio::select! {
                named = self.ask(tools, target, &sentinel) => named,
                () = (tools.sleep)(share) => Err(RedisFault::Connect("no answer in time".to_owned())),
            };
            let master = match named {
                Ok(master) => master,
                Err(fault) => {
                    faults.push(format!("sentinel {sentinel}: {}", why(fault)));
                    continue;
                }
            };
            if tried.contains(&master) {
                continue;
            }
            match connect::master(tools, target, &master).await {
                Ok(stream) => {
                    self.prefer(&sentinel);
                    return Ok(stream);
                }
                Err(fault) => faults.push(format!("sentinel {sentinel} names {master}: {}", why(fault))),
            }
            tried.push(master);
        }
        Err(RedisFault::Connect(faults.join("; ")))
    }

    /// The next to ask. It is the last one from now on, until it leads to the master.
    fn next(&self) -> Option<RedisAddress> {
        let mut order = self.order.borrow_mut();
        let next = order.pop_front()?;
        order.push_back(next.clone());
        Some(next)
    }

    fn prefer(&self, sentinel: &RedisAddress) {
        let mut order = self.order.borrow_mut();
        if let Some(at) = order.iter().position(|one| one == sentinel) {
            order.rotate_left(at);
        }
    }

    async fn ask(
        &self,
        tools: &RedisRuntime,
        target: &RedisTarget,
        sentinel: &RedisAddress,
    ) -> Result<RedisAddress, RedisFault> {
        let mut stream = connect::open(tools, target, sentinel).await?;
        let mut words = connect::login(&self.login);
        words.push(vec!["SENTINEL", "get-master-addr-by-name", &self.master_name]);
        let answer = connect::ask(&mut stream, &words).await?.pop();
        let unknown = || RedisFault::Connect(format!("unknown master `{}`", self.master_name));
        address(answer.as_ref()).ok_or_else(unknown)
    }
}

/// The fault without what all of them begin with.
fn why(fault: RedisFault) -> String {
    match fault {
        RedisFault::Connect(why) => why,
        other => other.to_string(),
    }
}

fn address(answer: Option<&RedisReply>) -> Option<RedisAddress> {
    let RedisReply::Array(items) = answer? else { return None };
    let [RedisReply::Text(host), port] = items.as_slice() else { return None };
    let host = String::from_utf8(host.clone()).ok()?;
    Some(RedisAddress { host, port: u16::try_from(port.integer()?).ok()? })
}

#[cfg(test)]
mod tests;
