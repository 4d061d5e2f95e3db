//! Maps values to axis positions, and chooses ticks.
//!
//! Independent of pixels and the meaning of the values.

/// Spacing of values on an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AxisSpacing {
    /// Equal steps have equal distances.
    Linear,
    /// Equal factors have equal distances; values of zero or less have no position.
    Logarithmic,
    /// Shares by their nines: 0.9, 0.99 and 0.999 are equally spaced.
    Nines,
}

/// A range of values with a spacing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct AxisScale {
    spacing: AxisSpacing,
    low: f64,
    high: f64,
    /// Base of round tick values, such as 1048576 for mebibytes.
    grain: f64,
}

/// Maximum number of nines: p99.9999.
const NINES_MAX: f64 = 6.0;

impl AxisScale {
    /// An axis that contains all values: from zero if linear, to 1, 2 or 5 times a power of ten if
    /// logarithmic.
    ///
    /// The base of round tick values follows from the largest value.
    pub(crate) fn around(
        spacing: AxisSpacing,
        values: impl Iterator<Item = f64>,
        grain: impl FnOnce(f64) -> f64,
    ) -> Self {
        // Zero and negative values have no logarithm.
        let usable = |value: &f64| value.is_finite() && (spacing != AxisSpacing::Logarithmic || *value > 0.0);
        let ends = values.filter(usable).fold(None, |ends: Option<(f64, f64)>, value| {
            Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let (low, high) = ends.unwrap_or((1.0, 1.0));
        let grain = grain(high);
        match spacing {
            AxisSpacing::Nines => Self { spacing, low: 0.0, high: 0.999_999, grain },
            AxisSpacing::Logarithmic => {
                let (low, mut high) = (round_to_125(low, false), round_to_125(high, true));
                // A single value needs a range too.
                if high <= low {
                    high = low * 10.0;
                }
                Self { spacing, low, high, grain }
            }
            AxisSpacing::Linear => {
                // All values are zero, as with errors; the axis still needs a length.
                let high = if high <= 0.0 { 1.0 } else { high };
                let step = step_for(high / grain, 5) * grain;
                Self { spacing, low: low.min(0.0), high: (high / step - 1e-9).ceil() * step, grain }
            }
        }
    }

    /// An axis from the first to the last value, without margins.
    pub(crate) fn between(spacing: AxisSpacing, low: f64, high: f64) -> Self {
        let (low, high) = if high > low { (low, high) } else { (low * 0.5, low * 1.5 + 1e-9) };
        Self { spacing, low, high, grain: 1.0 }
    }

    /// Position from 0 at the low end to 1 at the high end; `None` for values without a position.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let position = match self.spacing {
            AxisSpacing::Linear => (value - self.low) / (self.high - self.low),
            AxisSpacing::Logarithmic if value <= 0.0 => return None,
            AxisSpacing::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
            AxisSpacing::Nines => nines(value) / NINES_MAX,
        };
        (position.is_finite() && (-0.001..=1.001).contains(&position)).then_some(position.clamp(0.0, 1.0))
    }

    /// Ticks for an axis of usual height.
    pub(crate) fn y_ticks(&self) -> Vec<f64> {
        self.ticks(if self.spacing == AxisSpacing::Logarithmic { 7 } else { 5 })
    }

    /// Positions of numbers, about `most` at most.
    pub(crate) fn ticks(&self, most: usize) -> Vec<f64> {
        match self.spacing {
            AxisSpacing::Linear => linear_ticks(
                self.low,
                self.high,
                step_for((self.high - self.low) / self.grain, most) * self.grain,
            ),
            AxisSpacing::Logarithmic => logarithmic_ticks(self.low, self.high, most),
            AxisSpacing::Nines => vec![0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999],
        }
    }
}

/// Number of nines of a share: 0.99 has two.
fn nines(share: f64) -> f64 {
    if share >= 1.0 { NINES_MAX } else { (-(1.0 - share).log10()).clamp(0.0, NINES_MAX) }
}

fn linear_ticks(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step - 1e-9).ceil();
    let last = (high / step + 1e-9).floor();
    let count = (last - first) as usize + 1;
    (0..count).map(|index| (first + index as f64) * step).collect()
}

/// Decades; intermediate steps if there are few decades.
fn logarithmic_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let decades = (high / low).log10();
    let factors: &[f64] = match most as f64 {
        most if decades * 3.0 <= most => &[1.0, 2.0, 5.0],
        most if decades * 2.0 <= most => &[1.0, 3.0],
        _ => &[1.0],
    };
    let every = (decades / most as f64).ceil().max(1.0) as i32;
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let lowest_inside = (low.log10() - 1e-9).ceil() as i32;
    let decades = (first..=last).filter(|decade| (decade - lowest_inside) % every == 0);
    let ticks = decades.flat_map(|decade| factors.iter().map(move |factor| factor * 10_f64.powi(decade)));
    ticks.filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001).collect()
}

/// A step of 1, 2, 2.5 or 5 times a power of ten that divides the span into at most `most` parts.
fn step_for(span: f64, most: usize) -> f64 {
    let rough = span / most.max(1) as f64;
    let power = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|factor| factor * power >= rough * 0.999);
    factor.unwrap_or(10.0) * power
}

/// The next 1, 2 or 5 times a power of ten, upwards or downwards.
fn round_to_125(value: f64, up: bool) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let found = if up {
        steps.into_iter().find(|step| *step >= value * 0.999)
    } else {
        steps.into_iter().rev().find(|step| *step <= value * 1.001)
    };
    found.unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(scale: AxisScale, most: usize, expected: &[f64]) {
        let ticks = scale.ticks(most);
        assert_eq!(ticks.len(), expected.len(), "{ticks:?}");
        for (tick, expected) in ticks.iter().zip(expected) {
            assert!((tick - expected).abs() <= 1e-9 * expected.abs(), "{ticks:?}");
            assert!(scale.position(*tick).is_some(), "{tick} has no place");
        }
    }

    #[test]
    fn linear_axes_start_at_zero_and_end_at_a_round_number() {
        let scale = AxisScale::around(AxisSpacing::Linear, [13_200.0, 41_728.0].into_iter(), |_| 1.0);
        check(scale, 5, &[0.0, 10_000.0, 20_000.0, 30_000.0, 40_000.0, 50_000.0]);
        check(
            AxisScale::around(AxisSpacing::Linear, [0.0].into_iter(), |_| 1.0),
            5,
            &[0.0, 0.2, 0.4, 0.6, 0.8, 1.0],
        );
    }

    #[test]
    fn ticks_are_round_numbers_of_the_unit_that_is_written() {
        let scale = AxisScale::around(AxisSpacing::Linear, [118.0 * 1024.0].into_iter(), |_| 1024.0);
        check(scale, 5, &[0.0, 25.0, 50.0, 75.0, 100.0, 125.0].map(|kibibytes| kibibytes * 1024.0));
    }

    #[test]
    fn logarithmic_axes_show_decades_and_between_them_when_there_is_room() {
        check(
            AxisScale::around(AxisSpacing::Logarithmic, [93e3, 60e9].into_iter(), |_| 1.0),
            6,
            &[1e5, 1e7, 1e9, 1e11],
        );
        check(
            AxisScale::around(AxisSpacing::Logarithmic, [3.0, 40.0].into_iter(), |_| 1.0),
            6,
            &[2.0, 5.0, 10.0, 20.0, 50.0],
        );
    }

    #[test]
    fn nines_are_equally_far_apart() {
        let scale = AxisScale::around(AxisSpacing::Nines, std::iter::empty(), |_| 1.0);
        let positions: Vec<f64> =
            scale.ticks(9).into_iter().filter_map(|tick| scale.position(tick)).collect();
        assert_eq!(positions.len(), 7);
        for (index, position) in positions.iter().enumerate().skip(1) {
            assert!((position - index as f64 / 6.0).abs() < 1e-6, "{positions:?}");
        }
    }

    #[test]
    fn values_outside_the_axis_are_left_out() {
        let scale = AxisScale::around(AxisSpacing::Logarithmic, [1.0, 10.0].into_iter(), |_| 1.0);
        assert_eq!(scale.position(0.0), None);
        assert_eq!(scale.position(f64::NAN), None);
        assert_eq!(AxisScale::between(AxisSpacing::Linear, 0.0, 10.0).position(11.0), None);
    }

    #[test]
    fn a_single_value_still_makes_an_axis() {
        let position = AxisScale::between(AxisSpacing::Linear, 4.0, 4.0).position(4.0).expect("inside");
        assert!((position - 0.5).abs() < 0.01, "{position}");
        check(
            AxisScale::around(AxisSpacing::Logarithmic, [10.0].into_iter(), |_| 1.0),
            6,
            &[10.0, 20.0, 50.0, 100.0],
        );
    }
}
