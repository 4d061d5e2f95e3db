//! The set of endpoints that an exchange has tried.

use super::Endpoint;

/// Endpoints that an exchange has tried or excluded, by index.
#[derive(Debug, Clone, Default)]
pub struct TriedEndpoints {
    low: u128,
    count: u32,
    /// The first index beyond the bits of `low`, plus one. A single such index needs no allocation.
    first_high: u32,
    high: Option<Box<BitSet>>,
}

/// The number of endpoints with a bit in `low`.
const LOW: usize = u128::BITS as usize;

impl TriedEndpoints {
    /// Records an attempt at an endpoint.
    pub fn push(&mut self, index: usize) {
        self.exclude(index);
        self.count += 1;
    }

    fn exclude(&mut self, index: usize) {
        match index {
            ..LOW => self.low |= 1 << index,
            _ => self.push_high(index),
        }
    }

    /// The set with more endpoints excluded, as bits. They do not count as attempts.
    pub fn without(&self, endpoints: u128) -> TriedEndpoints {
        TriedEndpoints { low: self.low | endpoints, ..self.clone() }
    }

    /// Lets endpoints be tried again. The number of attempts stays.
    pub fn forget(&mut self) {
        *self = TriedEndpoints { count: self.count, ..TriedEndpoints::default() };
    }

    /// The set for the endpoints of another version of the upstream.
    pub fn remap(&self, before: &[Endpoint], now: &[Endpoint]) -> TriedEndpoints {
        // Indexes differ between versions; the identity of an endpoint does not.
        let tried = before.iter().enumerate().filter(|(index, _)| self.has(*index));
        let tried: Vec<u64> = tried.map(|(_, endpoint)| endpoint.state.id).collect();
        let mut carried = TriedEndpoints { count: self.count, ..TriedEndpoints::default() };
        let stands = now.iter().enumerate().filter(|(_, endpoint)| tried.contains(&endpoint.state.id));
        // `exclude` and not `push`: the number of attempts is carried over and must not count twice.
        stands.for_each(|(index, _)| carried.exclude(index));
        carried
    }

    /// The tried and excluded endpoints among the first 128, as bits.
    pub fn bits(&self) -> u128 {
        self.low
    }

    /// Whether no endpoint was tried or excluded.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.low == 0
    }

    #[cold]
    fn push_high(&mut self, index: usize) {
        match u32::try_from(index + 1) {
            // Few exchanges retry, and fewer at two endpoints beyond the first 128.
            Ok(first) if self.first_high == 0 => self.first_high = first,
            _ => self.high.get_or_insert_default().set(index - LOW),
        }
    }

    /// Whether an endpoint was tried or excluded.
    pub fn has(&self, index: usize) -> bool {
        match index {
            ..LOW => self.low & (1 << index) != 0,
            _ => self.first_high as usize == index + 1 || self.has_among_others(index),
        }
    }

    fn has_among_others(&self, index: usize) -> bool {
        self.high.as_ref().is_some_and(|high| high.has(index - LOW))
    }

    /// The number of attempts.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// A set of numbers that grows with its largest member.
#[derive(Debug, Clone, Default)]
struct BitSet(Vec<u64>);

impl BitSet {
    const WORD: usize = u64::BITS as usize;

    fn set(&mut self, number: usize) {
        let at = number / Self::WORD;
        if self.0.len() <= at {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (number % Self::WORD);
    }

    fn has(&self, number: usize) -> bool {
        self.0.get(number / Self::WORD).is_some_and(|word| word & (1 << (number % Self::WORD)) != 0)
    }
}

#[cfg(test)]
mod tests;
