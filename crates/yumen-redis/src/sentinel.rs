//! Redis Sentinel: the address of the current master.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::time::Duration;

use yumen_plugin::background::{RedisAddress, RedisFault, RedisLogin, RedisReply, RedisTarget};

use crate::RedisRuntime;
use crate::connect::{self, Stream};

/// The sentinels of one master.
pub(crate) struct SentinelSet {
    /// The name of the master at the sentinels.
    master_name: String,
    login: RedisLogin,
    /// The order of queries. The sentinel that last led to the master is first.
    order: RefCell<VecDeque<RedisAddress>>,
}

impl SentinelSet {
    pub(crate) fn new(named: &[RedisAddress], master_name: &str, login: &RedisLogin) -> SentinelSet {
        let order = RefCell::new(named.iter().cloned().collect());
        SentinelSet { master_name: master_name.to_owned(), login: login.clone(), order }
    }

    /// Connects to the master that a sentinel names. Each sentinel has an equal share of the timeout, so that
    /// an unresponsive one leaves time for the next. The caller enforces the timeout of the connection to the
    /// master: if that takes all of the time, the next attempt begins with another sentinel.
    pub(crate) async fn connect(
        &self,
        tools: &RedisRuntime,
        target: &RedisTarget,
    ) -> Result<Stream, RedisFault> {
        let count = self.order.borrow().len();
        // One share more than sentinels: the last one is for the connection to the master.
        let share = Duration::from_millis((target.timeout_ms / (count as u64 + 1)).max(1));
        let mut tried: Vec<RedisAddress> = Vec::new();
        let mut faults: Vec<String> = Vec::new();
        for _ in 0..count {
            let Some(sentinel) = self.next() else { break };
            let named = tokio::select! {
                named = self.query(tools, target, &sentinel) => named,
                () = (tools.sleep)(share) => Err(RedisFault::Connect("no answer in time".to_owned())),
            };
            let master = match named {
                Ok(master) => master,
                Err(fault) => {
                    faults.push(format!("sentinel {sentinel}: {}", why(fault)));
                    continue;
                }
            };
            // Sentinels usually name the same master, and one attempt on it is enough.
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

    /// Returns the next sentinel and moves it to the end, until it leads to the master.
    fn next(&self) -> Option<RedisAddress> {
        let mut order = self.order.borrow_mut();
        // Moved before the query: a caller whose time runs out must not begin with the same sentinel again.
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

    async fn query(
        &self,
        tools: &RedisRuntime,
        target: &RedisTarget,
        sentinel: &RedisAddress,
    ) -> Result<RedisAddress, RedisFault> {
        let mut stream = connect::open(tools, target, sentinel).await?;
        let mut words = connect::login(&self.login);
        words.push(vec!["SENTINEL", "get-master-addr-by-name", &self.master_name]);
        let answer = connect::exchange(&mut stream, &words).await?.pop();
        let unknown = || RedisFault::Connect(format!("unknown master `{}`", self.master_name));
        address(answer.as_ref()).ok_or_else(unknown)
    }
}

/// The text of a fault without the common prefix.
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
