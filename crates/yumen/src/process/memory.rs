//! Resident memory of the process: load shedding above a limit, and trimming of freed memory.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::Context;

const INTERVAL: Duration = Duration::from_millis(200);
/// Hysteresis: load shedding ends below this percentage of the limit.
const CALM_PERCENT: u64 = 95;

/// Above the limit: minimum pause between two trims, and the pause as a multiple of a trim's duration, so
/// that trims take at most 5 % of the time.
const TRIM_PAUSE: Duration = Duration::from_secs(1);
const TRIM_PAUSE_FACTOR: u32 = 20;
/// After a worker has freed much memory: number of trims and their interval. Several are needed, since
/// connections end later than the buffers in them.
const ASKED_TIMES: u32 = 3;
const ASKED_PAUSE: Duration = Duration::from_secs(5);
/// In idle times: interval of checks, minimum pause between trims, maximum CPU time used in that pause, and
/// minimum growth in bytes since the start.
const LOOK: Duration = Duration::from_secs(1);
const LEISURE: Duration = Duration::from_secs(60);
const LEISURE_CPU: Duration = Duration::from_millis(600);
const LEISURE_BYTES: u64 = 64 << 20;

/// Starts the memory thread. The flag is `true` while the process holds more than `bytes_max` bytes; 0 means
/// no limit. glibc retains freed memory, so the thread trims before it sets the flag: otherwise a full node
/// would never recover.
pub(crate) fn watch(bytes_max: u64) -> anyhow::Result<Option<Arc<AtomicBool>>> {
    let bytes = match resident_bytes() {
        // Without a limit the thread is a mere convenience, so a system without procfs is no error.
        Err(_) if bytes_max == 0 => return Ok(None),
        held => held.context("overload.memory_bytes: memory usage cannot be read on this system")?,
    };
    let full = (bytes_max > 0).then(|| Arc::new(AtomicBool::new(is_full(false, bytes, bytes_max))));
    let flag = full.clone();
    let thread = std::thread::Builder::new().name("yumen-memory".into());
    thread.spawn(move || {
        let mut trim = MemoryTrim::new(bytes);
        match flag {
            Some(flag) => watch_bound(&mut trim, bytes_max, &flag),
            None => loop {
                std::thread::sleep(LOOK);
                trim.trim_when_idle();
                trim.trim_if_requested();
            },
        }
    })?;
    Ok(full)
}

fn watch_bound(trim: &mut MemoryTrim, bytes_max: u64, flag: &AtomicBool) {
    loop {
        std::thread::sleep(INTERVAL);
        // Workers read the flag on its own.
        let was_full = flag.load(Relaxed);
        let measure = || resident_bytes().ok().map(|bytes| (bytes, is_full(was_full, bytes, bytes_max)));
        trim.trim_when_idle();
        trim.trim_if_requested();
        // Trim and measure again before the flag is set: freed memory is resident until it is trimmed.
        let measured = match measure() {
            Some((_, true)) if trim.if_due() => measure(),
            measured => measured,
        };
        // An unreadable measurement changes nothing.
        let Some((bytes, is_full)) = measured else { continue };
        flag.store(is_full, Relaxed);
        if is_full != was_full {
            tracing::warn!(bytes, bytes_max, is_full, "memory limit crossed");
        }
    }
}

/// Schedule of trims.
struct MemoryTrim {
    bytes_at_start: u64,
    due: Instant,
    /// Remaining trims after a worker has freed much memory, and the time of the next.
    repetitions: u32,
    next_due: Instant,
    leisure_due: Instant,
    cpu: Duration,
}

impl MemoryTrim {
    fn new(bytes_at_start: u64) -> MemoryTrim {
        let now = Instant::now();
        MemoryTrim {
            bytes_at_start,
            due: now,
            repetitions: 0,
            next_due: now,
            leisure_due: now + LEISURE,
            cpu: cpu_time(),
        }
    }

    /// Trims, unless the last trim was too recent. Returns whether it trimmed.
    fn if_due(&mut self) -> bool {
        let begun = Instant::now();
        if begun < self.due {
            return false;
        }
        yumen_proxy::malloc_trim::give_back();
        self.due = begun + TRIM_PAUSE.max(TRIM_PAUSE_FACTOR * begun.elapsed());
        true
    }

    /// Trims after a worker has freed buffers that peers had not read: a busy process may stay without idle
    /// time for long.
    fn trim_if_requested(&mut self) {
        let now = Instant::now();
        if yumen_proxy::malloc_trim::is_requested() {
            (self.repetitions, self.next_due) = (ASKED_TIMES, now);
        }
        if self.repetitions > 0 && now >= self.next_due && self.if_due() {
            self.repetitions -= 1;
            self.next_due = now + ASKED_PAUSE;
        }
    }

    /// Trims if the process has grown and used little CPU time.
    fn trim_when_idle(&mut self) {
        let now = Instant::now();
        if now < self.leisure_due {
            return;
        }
        let cpu_before = std::mem::replace(&mut self.cpu, cpu_time());
        self.leisure_due = now + LEISURE;
        // A trim costs page faults afterwards, so small gains are left alone.
        let is_much = || resident_bytes().is_ok_and(|bytes| bytes > self.bytes_at_start + LEISURE_BYTES);
        if self.cpu.saturating_sub(cpu_before) < LEISURE_CPU && is_much() {
            self.if_due();
        }
    }
}

/// CPU time of all threads: fields 14 and 15 of proc_pid_stat(5), in ticks of 10 ms. Field 2 may contain
/// spaces and parentheses, so parsing starts after the last parenthesis.
pub(crate) fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let words = text.rsplit(')').next().unwrap_or_default().split_ascii_whitespace();
    let ticks = words.skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
    // `USER_HZ` is 100 on all supported architectures.
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

fn is_full(was_full: bool, bytes: u64, bytes_max: u64) -> bool {
    let calm_bytes = bytes_max / 100 * CALM_PERCENT;
    // Two thresholds, so that shedding does not start and stop with every measurement.
    if was_full { bytes > calm_bytes } else { bytes > bytes_max }
}

/// Resident memory of the process: `VmRSS` in KiB of proc_pid_status(5).
pub(crate) fn resident_bytes() -> io::Result<u64> {
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
