//! The pace of one response: chunks wait until their bytes are due.

use std::time::Duration;

use yumen_config::resource::RouteLimitsSpec;
use yumen_plugin::{BodyChunk, ResponseBodyPhase, ResponseHeadPhase};

/// The bytes per second of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ResponseRate {
    bytes_per_s: u64,
    /// The bytes before the rate applies.
    free_bytes: u64,
}

/// The bytes of a response so far, until it ends.
struct PacedBytes {
    passed: u64,
    begun_us: u64,
}

impl ResponseRate {
    /// The rate; `None` without one.
    pub(crate) fn of(written: Option<&RouteLimitsSpec>) -> Option<ResponseRate> {
        let limits = written?;
        let bytes_per_s = limits.response_rate?;
        Some(ResponseRate { bytes_per_s, free_bytes: limits.response_rate_after.unwrap_or(0) })
    }

    pub(crate) fn begin(self, ex: &mut ResponseHeadPhase<'_, '_>) {
        ex.edit_body();
        let begun_us = ex.host.clock().mono_us;
        ex.leave(PacedBytes { passed: 0, begun_us });
    }

    /// The time from the begin of a response at which its first `bytes` are sent. As in NGINX, the bytes of one second
    /// need not wait.
    fn due_us(self, bytes: u64) -> u64 {
        let paced = u128::from(bytes.saturating_sub(self.free_bytes).saturating_sub(self.bytes_per_s));
        (paced * 1_000_000 / u128::from(self.bytes_per_s)).min(u128::from(u64::MAX)) as u64
    }

    pub(crate) fn pace(self, ex: &mut ResponseBodyPhase<'_, '_>, mut chunk: BodyChunk) -> BodyChunk {
        let now_us = ex.host.clock().mono_us;
        let Some(paced) = ex.note_mut::<PacedBytes>() else { return chunk };
        paced.passed += chunk.data.len() as u64;
        let due_us = paced.begun_us.saturating_add(self.due_us(paced.passed));
        if due_us > now_us && !chunk.data.is_empty() {
            let wait = ex.host.sleep(Duration::from_micros(due_us - now_us));
            let data = std::mem::take(&mut chunk.data);
            ex.defer_body(Box::pin(async move {
                wait.await;
                Some(data)
            }));
        }
        chunk
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_due_by_the_rate_after_the_free_ones() {
        let rate = ResponseRate { bytes_per_s: 1000, free_bytes: 500 };
        for (bytes, due_us) in [(0, 0), (1500, 0), (2000, 500_000), (11_500, 10_000_000)] {
            assert_eq!(rate.due_us(bytes), due_us, "{bytes}");
        }
        let slow = ResponseRate { bytes_per_s: 1, free_bytes: 0 };
        assert_eq!(slow.due_us(u64::MAX), u64::MAX);
    }
}
