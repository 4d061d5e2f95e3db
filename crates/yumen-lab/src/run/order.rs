//! The order of rounds: random, and reproducible by seed.

/// SplitMix64 random number generator; sufficient for shuffling.
#[derive(Clone, Debug)]
pub(super) struct ShuffleRandom(u64);

impl ShuffleRandom {
    pub(super) fn new(seed: u64) -> ShuffleRandom {
        ShuffleRandom(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Shuffles in place.
    pub(super) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = (self.next() % (last as u64 + 1)) as usize;
            items.swap(last, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(seed: u64) -> Vec<u32> {
        let mut items: Vec<u32> = (0..20).collect();
        ShuffleRandom::new(seed).shuffle(&mut items);
        items
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_another_one_another() {
        assert_eq!(shuffled(7), shuffled(7));
        assert_ne!(shuffled(7), shuffled(8));
        let mut sorted = shuffled(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<u32>>());
    }
}
