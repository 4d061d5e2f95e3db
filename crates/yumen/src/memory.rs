//! How much memory the process holds, watched for workers that must not take on more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context;

const INTERVAL: Duration = Duration::from_millis(200);
/// Requests are taken again below so many percent of the bound, so that it does not flicker.
const CALM_PERCENT: u64 = 95;

/// Above the bound, what was freed is given back no more often than that, and not for more than a twentieth of the time.
const TRIM_PAUSE: Duration = Duration::from_secs(1);
const TRIM_PAUSE_FACTOR: u32 = 20;
/// After a worker has freed much, memory is given back so often, in such steps: connections end later than what waited
/// in them.
const ASKED_TIMES: u32 = 3;
const ASKED_PAUSE: Duration = Duration::from_secs(5);
/// Below it, or without one, so often, if the process has used less than so much of the processor since the last time
/// and holds so much more than after its start.
const LOOK: Duration = Duration::from_secs(1);
const LEISURE: Duration = Duration::from_secs(60);
const LEISURE_CPU: Duration = Duration::from_millis(600);
const LEISURE_BYTES: u64 = 64 << 20;

/// Tells from now on whether the process holds more than so many bytes; 0 is no bound. What it holds without using it
/// is given back before that counts, as glibc keeps what is freed: without that a full node would never be calm again.
pub(crate) fn watch(bytes_max: u64) -> anyhow::Result<Option<Arc<AtomicBool>>> {
    let bytes = match resident_bytes() {
        Err(_) if bytes_max == 0 => return Ok(None),
        held => held.context("overload.memory_bytes: memory usage cannot be read on this system")?,
    };
    let full = (bytes_max > 0).then(|| Arc::new(AtomicBool::new(is_full(false, bytes, bytes_max))));
    let told = full.clone();
    let thread = std::thread::Builder::new().name("yumen-memory".into());
    thread.spawn(move || {
        let mut trim = MemoryTrim::new(bytes);
        match told {
            Some(told) => watch_bound(&mut trim, bytes_max, &told),
            None => loop {
                std::thread::sleep(LOOK);
                trim.trim_when_idle();
                trim.if_asked();
            },
        }
    })?;
    Ok(full)
}

fn watch_bound(trim: &mut MemoryTrim, bytes_max: u64, told: &AtomicBool) {
    loop {
        std::thread::sleep(INTERVAL);
        let was_full = told.load(Relaxed);
        let judge = || resident_bytes().ok().map(|bytes| (bytes, is_full(was_full, bytes, bytes_max)));
        trim.trim_when_idle();
        trim.if_asked();
        let judged = match judge() {
            Some((_, true)) if trim.if_due() => judge(),
            judged => judged,
        };
        let Some((bytes, is_full)) = judged else { continue };
        told.store(is_full, Relaxed);
        if is_full != was_full {
            tracing::warn!(bytes, bytes_max, is_full, "memory limit crossed");
        }
    }
}

/// When memory was given back, and when it may be again.
struct MemoryTrim {
    bytes_at_start: u64,
    due: Instant,
    /// How often memory is still given back because a worker has freed much, and when.
    asked_times: u32,
    asked_due: Instant,
    leisure_due: Instant,
    cpu: Duration,
}

impl MemoryTrim {
    fn new(bytes_at_start: u64) -> MemoryTrim {
        let now = Instant::now();
        MemoryTrim {
            bytes_at_start,
            due: now,
            asked_times: 0,
            asked_due: now,
            leisure_due: now + LEISURE,
            cpu: cpu_time(),
        }
    }

    /// Gives back what is not used, unless that was done just now.
    fn if_due(&mut self) -> bool {
        let begun = Instant::now();
        if begun < self.due {
            return false;
        }
        yumen_proxy::malloc_trim::give_back();
        self.due = begun + TRIM_PAUSE.max(TRIM_PAUSE_FACTOR * begun.elapsed());
        true
    }

    /// The same where a worker has freed much that peers had not taken: no leisure may come for long.
    fn if_asked(&mut self) {
        let now = Instant::now();
        if yumen_proxy::malloc_trim::is_wanted_back() {
            (self.asked_times, self.asked_due) = (ASKED_TIMES, now);
        }
        if self.asked_times > 0 && now >= self.asked_due && self.if_due() {
            self.asked_times -= 1;
            self.asked_due = now + ASKED_PAUSE;
        }
    }

    /// The same where it is much and nearly nobody can be kept waiting.
    fn trim_when_idle(&mut self) {
        let now = Instant::now();
        if now < self.leisure_due {
            return;
        }
        let cpu_before = std::mem::replace(&mut self.cpu, cpu_time());
        self.leisure_due = now + LEISURE;
        let is_much = || resident_bytes().is_ok_and(|bytes| bytes > self.bytes_at_start + LEISURE_BYTES);
        if self.cpu.saturating_sub(cpu_before) < LEISURE_CPU && is_much() {
            self.if_due();
        }
    }
}

/// How long all threads together have run, as the kernel tells it: in hundredths of a second, the 14th and 15th word of
/// proc_pid_stat(5), of which the second may hold anything up to the last parenthesis.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let words = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks = words.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn is_full(was_full: bool, bytes: u64, bytes_max: u64) -> bool {
    let calm_bytes = bytes_max / 100 * CALM_PERCENT;
    if was_full { bytes > calm_bytes } else { bytes > bytes_max }
}

/// As the kernel tells it, in KiB.
fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: Option<u64> = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
    Ok(kib.ok_or(io::ErrorKind::InvalidData)? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_full_above_its_bound_and_calm_a_little_below() {
        assert!(!is_full(false, 1000, 1000) && is_full(false, 1001, 1000));
        assert!(is_full(true, 951, 1000) && !is_full(true, 900, 1000));
    }

    #[test]
    fn this_process_has_run_for_some_time() {
        let begun = Instant::now();
        while cpu_time() == Duration::ZERO {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::hint::black_box((0..1_000_000_u64).sum::<u64>());
        }
        assert!(cpu_time() < Duration::from_secs(3600));
    }

    #[test]
    fn this_process_holds_some_memory() {
        assert!(resident_bytes().unwrap() > 100_000);
    }
}
