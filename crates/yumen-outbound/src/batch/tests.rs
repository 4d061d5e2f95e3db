use proptest::prelude::*;
use yumen_plugin::BatchPolicy;

use super::BatchClock;

fn policy(batch_max_size: u32, inactive_timeout_ms: u64, buffer_duration_ms: u64) -> BatchPolicy {
    BatchPolicy {
        batch_max_size,
        inactive_timeout_ms,
        buffer_duration_ms,
        max_retry_count: 0,
        retry_delay_ms: 0,
        pending_entries_max: 8192,
        pending_bytes_max: 1 << 20,
    }
}

#[test]
fn batches_are_due_by_size_inactivity_and_age() {
    /// Entries arrive at the times `adds`; the batch is due at `due_ms`.
    fn check(size: u32, adds: &[u64], expected: &[(u64, u64)]) {
        let mut clock = BatchClock::new(&policy(size, 5000, 12_000));
        let mut batches = Vec::new();
        for now_ms in 0..60_000 {
            let arrived = adds.iter().filter(|at| **at == now_ms).count() as u64;
            clock.add(arrived, now_ms);
            loop {
                let due = clock.due(now_ms);
                if due == 0 {
                    break;
                }
                batches.push((now_ms, due));
                clock.taken(due, now_ms);
            }
        }
        assert_eq!(batches, expected, "{size}: {adds:?}");
    }
    check(1, &[10, 10, 20], &[(10, 1), (10, 1), (20, 1)]);
    check(2, &[10, 20, 30], &[(20, 2), (5030, 1)]);
    check(1000, &[10], &[(5010, 1)]);
    // The timer rings at 5010 and is set again, since an entry came at 4000.
    check(1000, &[10, 4000], &[(10_010, 2)]);
    // Entries that keep coming are sent by the age of the first, which is looked at every 5 s.
    check(1000, &[0, 4000, 8000, 12_000, 14_900], &[(15_000, 5)]);
}

proptest! {
    #[test]
    fn every_entry_leaves_in_one_batch_of_at_most_the_size(
        size in 1_u32..20,
        inactive_ms in 0_u64..50,
        duration_ms in 1_u64..200,
        adds in proptest::collection::vec((0_u64..30, 0_u64..30), 0..40),
    ) {
        let mut clock = BatchClock::new(&policy(size, inactive_ms, duration_ms));
        let (mut now_ms, mut arrived, mut left) = (0, 0, 0);
        let mut oldest: Vec<u64> = Vec::new();
        let drain = |clock: &mut BatchClock, now_ms: u64, oldest: &mut Vec<u64>| {
            let mut taken = 0;
            loop {
                let due = clock.due(now_ms);
                if due == 0 {
                    break;
                }
                prop_assert!(due <= u64::from(size));
                prop_assert!(due <= oldest.len() as u64);
                oldest.drain(..due as usize);
                clock.taken(due, now_ms);
                taken += due;
            }
            Ok(taken)
        };
        for (pause_ms, entries) in adds {
            // The sender looks whenever the clock rings.
            while let Some(ring_ms) = clock.ring_ms().filter(|ring_ms| *ring_ms <= now_ms + pause_ms) {
                left += drain(&mut clock, ring_ms.max(now_ms), &mut oldest)?;
                if clock.ring_ms() == Some(ring_ms) {
                    prop_assert!(false, "the clock rings again at the same time");
                }
            }
            now_ms += pause_ms;
            clock.add(entries, now_ms);
            oldest.extend(std::iter::repeat_n(now_ms, entries as usize));
            arrived += entries;
            left += drain(&mut clock, now_ms, &mut oldest)?;
            prop_assert!((oldest.len() as u64) < u64::from(size), "a full batch is never held back");
        }
        let mut looks = 0;
        while let Some(ring_ms) = clock.ring_ms() {
            now_ms = now_ms.max(ring_ms);
            left += drain(&mut clock, now_ms, &mut oldest)?;
            looks += 1;
            prop_assert!(looks < 10, "the last entries leave");
        }
        prop_assert_eq!(arrived, left);
    }
}
