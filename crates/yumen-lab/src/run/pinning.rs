//! Assignment of processors to the parts. Pure.

use crate::record::CpuPinning;

/// Assigns one processor per worker to the gateway, and half of the rest each to upstream and generator.
///
/// If only one remains, the two share it. A single processor is not pinned.
pub(super) fn split(cpus: &[usize], workers: usize) -> CpuPinning {
    if cpus.len() < 2 {
        return CpuPinning::default();
    }
    let (gateway, rest) = cpus.split_at(workers.clamp(1, workers_max(cpus.len())));
    // Upstream and generator share the only remaining processor.
    if rest.len() == 1 {
        return CpuPinning { gateway: gateway.to_vec(), upstream: rest.to_vec(), generator: rest.to_vec() };
    }
    let (upstream, generator) = rest.split_at(rest.len() / 2);
    CpuPinning { gateway: gateway.to_vec(), upstream: upstream.to_vec(), generator: generator.to_vec() }
}

/// Maximum workers that leave processors to the other parts.
pub(super) fn workers_max(cpus: usize) -> usize {
    match cpus {
        0..=3 => 1,
        more => more / 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cpus: usize, workers: usize, gateway: &[usize], upstream: &[usize], generator: &[usize]) {
        let cpus: Vec<usize> = (0..cpus).collect();
        let expected =
            CpuPinning { gateway: gateway.into(), upstream: upstream.into(), generator: generator.into() };
        assert_eq!(split(&cpus, workers), expected);
    }

    #[test]
    fn parts_are_apart_where_there_are_processors_for_it() {
        check(1, 1, &[], &[], &[]);
        check(2, 1, &[0], &[1], &[1]);
        check(2, 2, &[0], &[1], &[1]);
        check(3, 1, &[0], &[1], &[2]);
        check(4, 1, &[0], &[1], &[2, 3]);
        check(8, 2, &[0, 1], &[2, 3, 4], &[5, 6, 7]);
        check(8, 8, &[0, 1, 2, 3], &[4, 5], &[6, 7]);
    }
}
