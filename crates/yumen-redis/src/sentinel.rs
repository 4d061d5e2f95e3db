//! Which server is the master now: what sentinels say.

use std::time::Duration;

use yumen_plugin::outbound::{RedisAddress, RedisFault, RedisPlace, RedisReply, RedisTarget};

use crate::{Tools, connect};

/// The master's address by the first sentinel that knows it. One that does not answer may take its share
/// of the target's time and no more, so that the next one is asked within it.
pub(crate) async fn master(tools: &Tools, target: &RedisTarget) -> Result<RedisAddress, RedisFault> {
    let RedisPlace::Sentinel { sentinels, .. } = &target.place else {
        return Err(RedisFault::Connect("no sentinels are named".to_owned()));
    };
    let share = Duration::from_millis((target.timeout_ms / (sentinels.len() as u64 + 1)).max(1));
    let mut fault = RedisFault::Connect("no sentinel is named".to_owned());
    for sentinel in sentinels {
        fault = tokio::select! {
            asked = ask(tools, target, sentinel) => match asked {
                Ok(master) => return Ok(master),
                Err(fault) => fault,
            },
            () = (tools.sleep)(share) => RedisFault::Connect(format!("sentinel {sentinel}: no answer in time")),
        };
    }
    Err(fault)
}

async fn ask(
    tools: &Tools,
    target: &RedisTarget,
    sentinel: &RedisAddress,
) -> Result<RedisAddress, RedisFault> {
    let RedisPlace::Sentinel { master_name, login, .. } = &target.place else {
        return Err(RedisFault::Connect("no sentinels are named".to_owned()));
    };
    let mut stream = connect::open(tools, target, sentinel).await?;
    let mut words = connect::login(login);
    words.push(vec!["SENTINEL", "get-master-addr-by-name", master_name]);
    let answer = connect::ask(&mut stream, &words).await?.pop();
    address(answer.as_ref())
        .ok_or_else(|| RedisFault::Connect(format!("sentinel {sentinel} knows no master `{master_name}`")))
}

fn address(answer: Option<&RedisReply>) -> Option<RedisAddress> {
    let RedisReply::Array(items) = answer? else { return None };
    let [RedisReply::Text(host), port] = items.as_slice() else { return None };
    let host = String::from_utf8(host.clone()).ok()?;
    Some(RedisAddress { host, port: u16::try_from(port.integer()?).ok()? })
}
