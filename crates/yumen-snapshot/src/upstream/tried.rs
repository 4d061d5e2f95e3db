//! Which endpoints an exchange has tried.

use super::Endpoint;

/// Endpoints already tried for an exchange, and others that are not to be, by index.
#[derive(Debug, Clone, Default)]
pub struct TriedEndpoints {
    low: u128,
    count: u32,
    /// The first one past the low ones, plus one: an attempt that needs no other allocates nothing.
    first_high: u32,
    high: Option<Box<BitSet>>,
}

/// How many have a bit in the exchange itself.
const LOW: usize = u128::BITS as usize;

impl TriedEndpoints {
    /// Notes an attempt at an endpoint.
    pub fn push(&mut self, index: usize) {
        self.leave_out(index);
        self.count += 1;
    }

    fn leave_out(&mut self, index: usize) {
        match index {
            ..LOW => self.low |= 1 << index,
            _ => self.push_high(index),
        }
    }

    /// Leaves more endpoints out, as bits, though there was no attempt at them.
    pub fn without(&self, endpoints: u128) -> TriedEndpoints {
        TriedEndpoints { low: self.low | endpoints, ..self.clone() }
    }

    /// The same of the endpoints an upstream has now, which had `before`.
    pub fn remap(&self, before: &[Endpoint], now: &[Endpoint]) -> TriedEndpoints {
        let tried = before.iter().enumerate().filter(|(index, _)| self.has(*index));
        let tried: Vec<u64> = tried.map(|(_, endpoint)| endpoint.state.id).collect();
        let mut carried = TriedEndpoints { count: self.count, ..TriedEndpoints::default() };
        let stands = now.iter().enumerate().filter(|(_, endpoint)| tried.contains(&endpoint.state.id));
        stands.for_each(|(index, _)| carried.leave_out(index));
        carried
    }

    /// What is left out of the first of them, as bits.
    pub fn bits(&self) -> u128 {
        self.low
    }

    /// Whether any endpoint will do: none was tried and none is left out.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.low == 0
    }

    #[cold]
    fn push_high(&mut self, index: usize) {
        match u32::try_from(index + 1) {
            Ok(first) if self.first_high == 0 => self.first_high = first,
            _ => self.high.get_or_insert_default().set(index - LOW),
        }
    }

    /// Whether an endpoint was tried or is left out.
    pub fn has(&self, index: usize) -> bool {
        match index {
            ..LOW => self.low & (1 << index) != 0,
            _ => self.first_high as usize == index + 1 || self.has_among_others(index),
        }
    }

    fn has_among_others(&self, index: usize) -> bool {
        self.high.as_ref().is_some_and(|high| high.has(index - LOW))
    }

    /// How many attempts there were.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// A set of numbers, as long as the largest needs.
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
