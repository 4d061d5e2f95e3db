//! Counting here and settling with Redis now and then: no request waits, and nodes learn of each other
//! within an interval.
//!
//! A node admits by what Redis said last and what it has admitted itself since. So all nodes together
//! exceed a limit by no more than what the others admit in one interval and one round trip. While Redis is
//! out of reach, each node goes on by itself and keeps what it has to tell.
//!
//! A process that takes over goes on in the windows of the one before. What that one admits, it tells Redis
//! itself, at the latest when it ends: so nothing is told twice.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use yumen_config::schema::InvalidSettings;
use yumen_plugin::background::{RedisFault, RedisReply, RedisScript, RedisScriptCall};
use yumen_plugin::{Exchange, Now, PluginBuildContext, SharedOutbound};

use super::redis::{FIXED, LimitCountRedis};
use super::window::{CountWindow, WindowDecision, WindowImport};
use super::{LimitCountSettings, WindowType};
use crate::limits::remote;
use crate::limits::table::{KEYS_MAX, KeyedState, TableShare, share};

/// Adds to a sliding window, and tells it and the one before.
const ADD: RedisScript = RedisScript {
    text: "\
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if count == tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {count, tonumber(redis.call('GET', KEYS[2]) or '0')}",
};

/// How many keys are settled at a time.
const BATCH: usize = 1000;

/// A key's window as far as it is known here.
#[derive(Default)]
struct DelayedCounter {
    window: CountWindow,
    /// Admitted here in this window.
    admitted: AtomicU64,
    /// Admitted here, and not told to Redis yet.
    untold: AtomicU64,
    /// On its way to Redis, which has not answered yet.
    telling: AtomicU64,
    window_s: u64,
    /// Tells one window from the next.
    turns: u64,
}

impl DelayedCounter {
    /// Begins a window where none is open; gives what Redis has not been told of a sliding one that is over. What
    /// is left of a fixed one matters to nobody.
    ///
    /// Several workers find at once that a window is over. What was counted in the one that the first of them has
    /// begun stays.
    fn turn(&mut self, kind: WindowType, window_ms: u64, now: Now) -> Option<WindowRemainder> {
        let (number, window_s) = (self.window.number(), self.window_s);
        let has_begun = match kind {
            WindowType::Fixed => self.window.turn_fixed(window_ms, now),
            WindowType::Sliding => self.window.turn_sliding(window_ms, now),
        };
        if !has_begun {
            return None;
        }
        let told = std::mem::take(self.untold.get_mut());
        self.begin(window_ms / 1000);
        (told > 0 && kind == WindowType::Sliding).then_some(WindowRemainder { number, told, window_s })
    }

    /// Counts one more; whether there was nothing to tell before.
    fn admit(&self) -> bool {
        self.admitted.fetch_add(1, Relaxed);
        self.untold.fetch_add(1, Relaxed) == 0
    }

    /// Another window is open now.
    fn begin(&mut self, window_s: u64) {
        *self.admitted.get_mut() = 0;
        *self.untold.get_mut() = 0;
        *self.telling.get_mut() = 0;
        self.window_s = window_s;
        self.turns += 1;
    }
}

/// How many numbers are told of the window itself.
const OF_WINDOW: usize = 5;

impl KeyedState for DelayedCounter {
    fn useless_at_ms(&self) -> Option<u64> {
        self.window.useless_at_ms()
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        let mut numbers = self.window.numbers()?;
        let owed = self.untold.load(Relaxed) + self.telling.load(Relaxed);
        numbers.extend([self.window_s, self.turns, self.admitted.load(Relaxed), owed]);
        Some(numbers)
    }

    fn take_over(&mut self, numbers: &[u64], now: Now) {
        let Some((of_window, [window_s, ..])) = numbers.split_at_checked(OF_WINDOW) else { return };
        if self.window.go_on_from(of_window, now) == WindowImport::Replaced {
            self.begin(*window_s);
        }
    }

    /// What was admitted and is still to be told to Redis. What Redis knows, and what it says of other nodes, the
    /// other process hears from there: told twice, it would count twice.
    fn since(before: Option<&[u64]>, now: &[u64]) -> Option<Vec<u64>> {
        let [_, end @ .., window_s, turns, admitted, owed] = now else { return None };
        let known = match before {
            Some([.., before, known, _]) if before == turns => *known,
            _ => 0,
        };
        let more = admitted.checked_sub(known)?.min(*owed);
        (more > 0).then(|| [&[more], end, &[*window_s]].concat())
    }
}

/// What Redis is to be told of a key.
struct PendingSync {
    key: Box<[u8]>,
    rest: Option<WindowRemainder>,
}

/// What was left of a sliding window when the next one began.
#[derive(Clone, Copy)]
struct WindowRemainder {
    number: u64,
    told: u64,
    window_s: u64,
}

/// Counters that are settled with Redis; all workers share them.
pub(crate) struct DelayedCounters {
    remote: LimitCountRedis,
    window_type: WindowType,
    tallies: Arc<TableShare<DelayedCounter>>,
    interval: Duration,
    due: Mutex<Vec<PendingSync>>,
    /// Whether some worker will settle what is due.
    is_tended: AtomicBool,
}

/// A question on its way, and what it is about.
struct RunningSync {
    key: Box<[u8]>,
    told: u64,
    turns: u64,
    /// The window that is over, if it is about one.
    rest: Option<WindowRemainder>,
}

impl DelayedCounters {
    /// The counters of these settings.
    pub(super) fn new(
        remote: LimitCountRedis,
        config: &LimitCountSettings,
        setup: &PluginBuildContext<'_>,
        name: &str,
        rules: usize,
    ) -> Arc<DelayedCounters> {
        // What one Redis said holds of no other.
        let name = format!("{name}/{:?}/{:?}", config.policy, config.redis);
        // Found first: what is carried must not look for what is carried.
        let tallies = share(setup, "limit-count/delayed", &name, rules);
        let make = || DelayedCounters {
            remote,
            window_type: config.window_type,
            tallies,
            interval: Duration::from_secs_f64(config.sync_interval.min(86_400.0)),
            due: Mutex::default(),
            is_tended: AtomicBool::new(false),
        };
        setup.carry.keep(&format!("limit-count/delayed/{name}/{}", config.sync_interval), make)
    }

    /// Begins a key of a rule.
    pub(super) fn begin_key(&self, rule: usize, key: &mut Vec<u8>) {
        self.tallies.begin(rule, key);
    }

    /// Counts a request by what is known here.
    pub(super) fn count(
        self: &Arc<Self>,
        ex: &Exchange<'_>,
        key: &[u8],
        limit: u64,
        window_ms: u64,
    ) -> WindowDecision {
        let (table, now) = (self.tallies.table(), ex.now);
        let in_window = |tally: &DelayedCounter| {
            let verdict = match self.window_type {
                WindowType::Fixed => tally.window.count_fixed(limit, now)?,
                WindowType::Sliding => tally.window.count_sliding(limit, window_ms, now)?,
            };
            Some((verdict, verdict.admitted && tally.admit()))
        };
        let mut is_new = false;
        loop {
            if let Some((verdict, is_first)) = table.look(key, in_window) {
                if is_first {
                    self.note(ex, key, is_new);
                }
                return verdict;
            }
            let rest = table.change(key, now.mono_ms(), |tally| tally.turn(self.window_type, window_ms, now));
            if rest.is_some() {
                self.owe(PendingSync { key: key.into(), rest });
            }
            is_new = true;
        }
    }

    /// Sees to it that Redis is told: within the interval, and at once of a key that is new here, since
    /// others may have counted it for long.
    #[cold]
    fn note(self: &Arc<Self>, ex: &Exchange<'_>, key: &[u8], is_new: bool) {
        self.owe(PendingSync { key: key.into(), rest: None });
        let must_tend = !self.is_tended.swap(true, Relaxed);
        if !must_tend && !is_new {
            return;
        }
        let Some(outbound) = ex.host.outbound() else {
            self.is_tended.store(false, Relaxed);
            return;
        };
        if is_new {
            let (delayed, way, due) =
                (self.clone(), outbound.clone(), PendingSync { key: key.into(), rest: None });
            outbound.spawn(Box::pin(async move {
                // What was not heard is due again.
                delayed.settle(&way, vec![due]).await;
            }));
        }
        if must_tend {
            let tending = SyncTaskGuard(self.clone());
            let way = outbound.clone();
            outbound.spawn(Box::pin(async move { tending.0.tend(&way).await }));
        }
    }

    /// Remembers what Redis is to be told; no more than a table has keys, since clients may make them up.
    fn owe(&self, due: PendingSync) {
        let mut all = self.due();
        if all.len() < KEYS_MAX {
            all.push(due);
        }
    }

    fn due(&self) -> MutexGuard<'_, Vec<PendingSync>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Settles at every interval until nothing is due, and once more where the worker is about to end.
    async fn tend(self: &Arc<Self>, outbound: &SharedOutbound) {
        let mut is_forwarded = true;
        while is_forwarded {
            is_forwarded = outbound.rest(self.interval).await;
            let mut due = std::mem::take(&mut *self.due());
            if due.is_empty() {
                self.is_tended.store(false, Relaxed);
                // Somebody may have noted a key and seen that all is tended.
                if self.due().is_empty() || self.is_tended.swap(true, Relaxed) {
                    return;
                }
            }
            while !due.is_empty() {
                let later = due.split_off(due.len().min(BATCH));
                let is_heard = self.settle(outbound, due).await;
                due = later;
                if !is_heard {
                    self.due().append(&mut due);
                }
            }
        }
    }

    /// Tells Redis and takes over what it says; whether it says anything. All questions travel together.
    async fn settle(&self, outbound: &SharedOutbound, due: Vec<PendingSync>) -> bool {
        let ask = |(settling, call): (RunningSync, RedisScriptCall)| {
            (settling, outbound.redis(&self.remote.target, call))
        };
        let now = outbound.now();
        let asked: Vec<_> = due.into_iter().filter_map(|due| self.question(due, now)).map(ask).collect();
        let mut is_heard = asked.is_empty();
        for (settling, answer) in asked {
            let told = answer.await.and_then(|reply| pair(&reply));
            is_heard |= told.is_ok();
            self.take(outbound, settling, told);
        }
        is_heard
    }

    fn question(&self, due: PendingSync, now: Now) -> Option<(RunningSync, RedisScriptCall)> {
        if let Some(rest) = due.rest {
            let call = self.add(&due.key, rest.number, rest.told, rest.window_s);
            return Some((RunningSync { key: due.key, told: rest.told, turns: 0, rest: due.rest }, call));
        }
        let look = |tally: &DelayedCounter| {
            let untold = tally.untold.swap(0, Relaxed);
            // What is left of a fixed window that is over would be charged to the one that is open in Redis.
            let is_over = self.window_type == WindowType::Fixed && tally.window.is_over(now);
            let told = if is_over { 0 } else { untold };
            tally.telling.fetch_add(told, Relaxed);
            (told > 0).then_some((told, tally.turns, tally.window.number(), tally.window_s))
        };
        let (told, turns, number, window_s) = self.tallies.table().look(&due.key, look)?;
        let call = match self.window_type {
            WindowType::Fixed => RedisScriptCall {
                script: FIXED,
                keys: vec![self.remote.fixed_key(written(&due.key))],
                args: [0, window_s.min(remote::EXPIRY_S_MAX), told]
                    .map(|number| number.to_string().into_bytes())
                    .into(),
            },
            WindowType::Sliding => self.add(&due.key, number, told, window_s),
        };
        Some((RunningSync { key: due.key, told, turns, rest: None }, call))
    }

    fn add(&self, key: &[u8], number: u64, told: u64, window_s: u64) -> RedisScriptCall {
        let keys =
            [number, number.saturating_sub(1)].map(|number| self.remote.sliding_key(written(key), number));
        let args =
            [told, window_s.min(remote::EXPIRY_S_MAX) * 2000].map(|number| number.to_string().into_bytes());
        RedisScriptCall { script: ADD, keys: keys.into(), args: args.into() }
    }

    /// Takes over what Redis said of a key; where it said nothing, that is still to be told.
    fn take(&self, outbound: &SharedOutbound, settling: RunningSync, told: Result<(u64, u64), RedisFault>) {
        let now = outbound.now();
        if let Some(rest) = settling.rest {
            // It matters as long as it is the window before.
            let is_before = now.unix_ms / (rest.window_s.max(1) * 1000) <= rest.number + 1;
            if told.is_err() && is_before {
                self.owe(PendingSync { key: settling.key, rest: Some(rest) });
            }
            return;
        }
        let is_untold = self.tallies.table().change(&settling.key, now.mono_ms(), |tally| {
            if tally.turns != settling.turns {
                return false;
            }
            *tally.telling.get_mut() -= settling.told;
            let Ok((count, second)) = told else {
                *tally.untold.get_mut() += settling.told;
                return true;
            };
            let ours = *tally.untold.get_mut() + *tally.telling.get_mut();
            let count = count.saturating_add(ours);
            match self.window_type {
                WindowType::Fixed => tally.window.settle_fixed(count, second, tally.window_s * 1000, now),
                WindowType::Sliding => tally.window.settle_sliding(count, second),
            }
            false
        });
        if is_untold {
            self.owe(PendingSync { key: settling.key, rest: None });
        }
    }
}

/// The worker that tends may end before others do.
struct SyncTaskGuard(Arc<DelayedCounters>);

impl Drop for SyncTaskGuard {
    fn drop(&mut self) {
        self.0.is_tended.store(false, Relaxed);
    }
}

/// The part of a key that says whom it is about.
fn written(key: &[u8]) -> &[u8] {
    key.get(TableShare::<DelayedCounter>::NUMBER_BYTES..).unwrap_or_default()
}

fn pair(reply: &RedisReply) -> Result<(u64, u64), RedisFault> {
    let numbers = remote::numbers(reply, 2)?;
    let number = |at: usize| u64::try_from(numbers[at]).unwrap_or(0);
    Ok((number(0), number(1)))
}

/// Whether settings ask for it; refuses intervals that cannot be.
pub(super) fn is_asked_for(config: &LimitCountSettings) -> Result<bool, InvalidSettings> {
    let interval_s = config.sync_interval;
    if interval_s == -1.0 {
        return Ok(false);
    }
    if interval_s < 0.1 {
        return Err(InvalidSettings::new("sync_interval should not be smaller than 0.1"));
    }
    match config.time_window {
        Some(crate::limits::LimitAmount::Number(window_s)) if interval_s >= window_s as f64 => {
            Err(InvalidSettings::new("sync_interval should be smaller than time_window"))
        }
        _ => Ok(true),
    }
}

#[cfg(test)]
mod tests;
