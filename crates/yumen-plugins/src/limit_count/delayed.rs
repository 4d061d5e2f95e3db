//! Counters that are synchronized with Redis at intervals: no request waits, and nodes see each other's
//! counts after one interval.
//!
//! A node decides by the last count from Redis plus its own admissions since then. All nodes together exceed
//! a limit by at most the admissions of the others during one interval and one round trip. While Redis is
//! unreachable, each node decides alone and keeps its pending counts.
//!
//! A successor continues the windows of its predecessor. The predecessor reports its own admissions to Redis,
//! at the latest when it exits, so none is counted twice.

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

/// Adds to a sliding window and returns its count and that of the previous window.
const ADD: RedisScript = RedisScript {
    text: "\
local count = redis.call('INCRBY', KEYS[1], ARGV[1])
if count == tonumber(ARGV[1]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {count, tonumber(redis.call('GET', KEYS[2]) or '0')}",
};

/// Most keys in one batch of calls.
const BATCH: usize = 1000;

/// The window of a key as known to this node.
#[derive(Default)]
struct DelayedCounter {
    window: CountWindow,
    /// Requests admitted by this node in this window.
    admitted: AtomicU64,
    /// Of these, those not yet sent to Redis.
    unreported: AtomicU64,
    /// Of these, those sent to Redis without a reply yet.
    unconfirmed: AtomicU64,
    window_s: u64,
    /// Number of the window on this node; identifies it in replies.
    turns: u64,
}

impl DelayedCounter {
    /// Replaces a window that has ended. Returns the unsent count of a sliding window, which still weighs in
    /// the next one; that of a fixed window is dropped.
    ///
    /// Several workers may find the same window ended. Only the first replaces it, so counts in the new
    /// window are kept.
    fn turn(&mut self, kind: WindowType, window_ms: u64, now: Now) -> Option<WindowRemainder> {
        let (number, window_s) = (self.window.number(), self.window_s);
        let has_begun = match kind {
            WindowType::Fixed => self.window.turn_fixed(window_ms, now),
            WindowType::Sliding => self.window.turn_sliding(window_ms, now),
        };
        if !has_begun {
            return None;
        }
        let reported = std::mem::take(self.unreported.get_mut());
        self.begin(window_ms / 1000);
        (reported > 0 && kind == WindowType::Sliding).then_some(WindowRemainder {
            number,
            reported,
            window_s,
        })
    }

    /// Counts one request; returns true if it is the first one to send.
    fn admit(&self) -> bool {
        self.admitted.fetch_add(1, Relaxed);
        self.unreported.fetch_add(1, Relaxed) == 0
    }

    /// Resets the counts for a new window.
    fn begin(&mut self, window_s: u64) {
        *self.admitted.get_mut() = 0;
        *self.unreported.get_mut() = 0;
        *self.unconfirmed.get_mut() = 0;
        self.window_s = window_s;
        self.turns += 1;
    }
}

/// Number of values that [`CountWindow::numbers`] exports.
const OF_WINDOW: usize = 5;

impl KeyedState for DelayedCounter {
    fn useless_at_ms(&self) -> Option<u64> {
        self.window.useless_at_ms()
    }

    fn numbers(&self) -> Option<Vec<u64>> {
        let mut numbers = self.window.numbers()?;
        let owed = self.unreported.load(Relaxed) + self.unconfirmed.load(Relaxed);
        numbers.extend([self.window_s, self.turns, self.admitted.load(Relaxed), owed]);
        Some(numbers)
    }

    fn take_over(&mut self, numbers: &[u64], now: Now) {
        let Some((of_window, [window_s, ..])) = numbers.split_at_checked(OF_WINDOW) else { return };
        if self.window.go_on_from(of_window, now) == WindowImport::Replaced {
            self.begin(*window_s);
        }
    }

    /// The admissions that are not in Redis yet. All other counts reach the other process through Redis, and
    /// would count twice if they were handed over too.
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

/// A key with counts to send to Redis.
struct PendingSync {
    key: Box<[u8]>,
    rest: Option<WindowRemainder>,
}

/// The unsent count of a sliding window that was replaced.
#[derive(Clone, Copy)]
struct WindowRemainder {
    number: u64,
    reported: u64,
    window_s: u64,
}

/// Counters of one limit that are synchronized with Redis; all workers share them.
pub(crate) struct DelayedCounters {
    remote: LimitCountRedis,
    window_type: WindowType,
    tallies: Arc<TableShare<DelayedCounter>>,
    interval: Duration,
    due: Mutex<Vec<PendingSync>>,
    /// Whether a worker runs the task that sends due counts.
    is_tended: AtomicBool,
}

/// A call to Redis without a reply yet.
struct RunningSync {
    key: Box<[u8]>,
    reported: u64,
    turns: u64,
    /// The replaced window, if the call is about one.
    rest: Option<WindowRemainder>,
}

impl DelayedCounters {
    /// The counters for these settings.
    pub(super) fn new(
        remote: LimitCountRedis,
        config: &LimitCountSettings,
        setup: &PluginBuildContext<'_>,
        name: &str,
        rules: usize,
    ) -> Arc<DelayedCounters> {
        // Counts of one Redis do not apply to another.
        let name = format!("{name}/{:?}/{:?}", config.policy, config.redis);
        // Outside the closure: `keep` must not be called while the registry is locked by `keep`.
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

    /// Writes the beginning of a key of the rule.
    pub(super) fn begin_key(&self, rule: usize, key: &mut Vec<u8>) {
        self.tallies.begin(rule, key);
    }

    /// Counts a request by the local state of its window.
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

    /// Schedules the key for synchronization: within the interval, or at once if it is new here, because
    /// other nodes may have counted it for a while.
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
            let (delayed, outbound_copy, due) =
                (self.clone(), outbound.clone(), PendingSync { key: key.into(), rest: None });
            outbound.spawn(Box::pin(async move {
                // A failed call queues its key again.
                delayed.settle(&outbound_copy, vec![due]).await;
            }));
        }
        if must_tend {
            let tending = SyncTaskGuard(self.clone());
            let outbound_copy = outbound.clone();
            outbound.spawn(Box::pin(async move { tending.0.tend(&outbound_copy).await }));
        }
    }

    /// Queues a key, at most as many as a table has keys, because clients may invent keys.
    fn owe(&self, due: PendingSync) {
        let mut all = self.due();
        if all.len() < KEYS_MAX {
            all.push(due);
        }
    }

    fn due(&self) -> MutexGuard<'_, Vec<PendingSync>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends due counts at every interval until there are none, and once more before the worker exits.
    async fn tend(self: &Arc<Self>, outbound: &SharedOutbound) {
        let mut is_running = true;
        while is_running {
            is_running = outbound.rest(self.interval).await;
            let mut due = std::mem::take(&mut *self.due());
            if due.is_empty() {
                self.is_tended.store(false, Relaxed);
                // A key may have been queued after the check, by a worker that saw the task still running.
                if self.due().is_empty() || self.is_tended.swap(true, Relaxed) {
                    return;
                }
            }
            while !due.is_empty() {
                let later = due.split_off(due.len().min(BATCH));
                let is_confirmed = self.settle(outbound, due).await;
                due = later;
                // Redis is unreachable, so the remaining batches wait for the next interval.
                if !is_confirmed {
                    self.due().append(&mut due);
                }
            }
        }
    }

    /// Sends a batch in parallel and applies the replies; returns whether Redis replied to any.
    async fn settle(&self, outbound: &SharedOutbound, due: Vec<PendingSync>) -> bool {
        let ask = |(settling, call): (RunningSync, RedisScriptCall)| {
            (settling, outbound.redis(&self.remote.target, call))
        };
        let now = outbound.now();
        let calls: Vec<_> = due.into_iter().filter_map(|due| self.question(due, now)).map(ask).collect();
        let mut is_confirmed = calls.is_empty();
        for (settling, answer) in calls {
            let reported = answer.await.and_then(|reply| pair(&reply));
            is_confirmed |= reported.is_ok();
            self.take(outbound, settling, reported);
        }
        is_confirmed
    }

    fn question(&self, due: PendingSync, now: Now) -> Option<(RunningSync, RedisScriptCall)> {
        if let Some(rest) = due.rest {
            let call = self.add(&due.key, rest.number, rest.reported, rest.window_s);
            return Some((
                RunningSync { key: due.key, reported: rest.reported, turns: 0, rest: due.rest },
                call,
            ));
        }
        let look = |tally: &DelayedCounter| {
            let unreported = tally.unreported.swap(0, Relaxed);
            // The remainder of an ended fixed window would be added to the window that is open in Redis.
            let is_over = self.window_type == WindowType::Fixed && tally.window.is_over(now);
            let reported = if is_over { 0 } else { unreported };
            tally.unconfirmed.fetch_add(reported, Relaxed);
            (reported > 0).then_some((reported, tally.turns, tally.window.number(), tally.window_s))
        };
        let (reported, turns, number, window_s) = self.tallies.table().look(&due.key, look)?;
        let call = match self.window_type {
            WindowType::Fixed => RedisScriptCall {
                script: FIXED,
                keys: vec![self.remote.fixed_key(written(&due.key))],
                args: [0, window_s.min(remote::EXPIRY_S_MAX), reported]
                    .map(|number| number.to_string().into_bytes())
                    .into(),
            },
            WindowType::Sliding => self.add(&due.key, number, reported, window_s),
        };
        Some((RunningSync { key: due.key, reported, turns, rest: None }, call))
    }

    fn add(&self, key: &[u8], number: u64, reported: u64, window_s: u64) -> RedisScriptCall {
        let keys =
            [number, number.saturating_sub(1)].map(|number| self.remote.sliding_key(written(key), number));
        // The key lives for two windows, because its count weighs in the next window too.
        let args = [reported, window_s.min(remote::EXPIRY_S_MAX) * 2000]
            .map(|number| number.to_string().into_bytes());
        RedisScriptCall { script: ADD, keys: keys.into(), args: args.into() }
    }

    /// Applies a reply to its key; without a reply the counts become due again.
    fn take(
        &self,
        outbound: &SharedOutbound,
        settling: RunningSync,
        reported: Result<(u64, u64), RedisFault>,
    ) {
        let now = outbound.now();
        if let Some(rest) = settling.rest {
            // The remainder matters as long as its window is the current or the previous one.
            let is_before = now.unix_ms / (rest.window_s.max(1) * 1000) <= rest.number + 1;
            if reported.is_err() && is_before {
                self.owe(PendingSync { key: settling.key, rest: Some(rest) });
            }
            return;
        }
        let is_untold = self.tallies.table().change(&settling.key, now.mono_ms(), |tally| {
            // The counter began another window after the call was sent.
            if tally.turns != settling.turns {
                return false;
            }
            *tally.unconfirmed.get_mut() -= settling.reported;
            let Ok((count, second)) = reported else {
                *tally.unreported.get_mut() += settling.reported;
                return true;
            };
            // The reply includes no admissions since the call and none of other calls in flight.
            let local = *tally.unreported.get_mut() + *tally.unconfirmed.get_mut();
            let count = count.saturating_add(local);
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

/// Marks the task as stopped if its worker ends before the others.
struct SyncTaskGuard(Arc<DelayedCounters>);

impl Drop for SyncTaskGuard {
    fn drop(&mut self) {
        self.0.is_tended.store(false, Relaxed);
    }
}

/// The key as Redis stores it, without the number of the limit.
fn written(key: &[u8]) -> &[u8] {
    key.get(TableShare::<DelayedCounter>::NUMBER_BYTES..).unwrap_or_default()
}

fn pair(reply: &RedisReply) -> Result<(u64, u64), RedisFault> {
    let numbers = remote::numbers(reply, 2)?;
    let number = |at: usize| u64::try_from(numbers[at]).unwrap_or(0);
    Ok((number(0), number(1)))
}

/// Whether the settings request synchronization; refuses invalid intervals.
pub(super) fn is_requested(config: &LimitCountSettings) -> Result<bool, InvalidSettings> {
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
