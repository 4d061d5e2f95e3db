//! How much memory the process holds, watched for workers that must not take on more.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context;

const INTERVAL: Duration = Duration::from_millis(200);
/// Requests are taken again below so many percent of the bound, so that it does not flicker.
const CALM_PERCENT: u64 = 95;

/// Tells from now on whether the process holds more than so many bytes; 0 is no bound.
pub(crate) fn watch(bytes_max: u64) -> anyhow::Result<Option<Arc<AtomicBool>>> {
    if bytes_max == 0 {
        return Ok(None);
    }
    let bytes =
        resident_bytes().context("overload.memory_bytes: how much memory is held cannot be told here")?;
    let full = Arc::new(AtomicBool::new(is_full(false, bytes, bytes_max)));
    let told = full.clone();
    std::thread::Builder::new().name("yumen-memory".into()).spawn(move || {
        loop {
            std::thread::sleep(INTERVAL);
            let Ok(bytes) = resident_bytes() else { continue };
            let was_full = told.load(Relaxed);
            let is_full = is_full(was_full, bytes, bytes_max);
            told.store(is_full, Relaxed);
            if is_full != was_full {
                tracing::warn!(bytes, bytes_max, is_full, "memory bound passed");
            }
        }
    })?;
    Ok(Some(full))
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
    fn this_process_holds_some_memory() {
        assert!(resident_bytes().unwrap() > 100_000);
    }
}
