//! Sampling decisions of new and continued traces.

use super::TraceId;

/// A share of all traces.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TraceShare {
    All,
    Nothing,
    /// Traces whose number is below this one, of 2^63 numbers.
    Below(u64),
}

impl TraceShare {
    /// The share of this fraction; values outside of 0 to 1 are cut off.
    pub(crate) fn of(fraction: f64) -> TraceShare {
        match fraction {
            1.0.. => TraceShare::All,
            fraction if fraction > 0.0 => TraceShare::Below((fraction * (1u64 << 63) as f64) as u64),
            _ => TraceShare::Nothing,
        }
    }

    /// Whether the trace is in the share. All hops with the same fraction decide alike, since they compare the lower 63
    /// bits of the identifier, as the SDKs of OpenTelemetry do.
    pub(crate) fn has(self, trace_id: &TraceId) -> bool {
        match self {
            TraceShare::All => true,
            TraceShare::Nothing => false,
            TraceShare::Below(bound) => {
                let low = trace_id.last_chunk().map_or(0, |low| u64::from_be_bytes(*low));
                low & (u64::MAX >> 1) < bound
            }
        }
    }

    /// Whether a random number is in the share.
    pub(crate) fn draws(self, random: u64) -> bool {
        self.has(&u128::from(random).to_be_bytes())
    }
}

/// The sampler of a plugin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum TraceSampler {
    /// Decides each trace by its identifier.
    Share(TraceShare),
    /// Continues the decision of the caller, and decides new traces by their identifier.
    ParentBased(TraceShare),
}

impl TraceSampler {
    /// Decides about a trace; `parent` is the decision of the caller, if there is one.
    pub(crate) fn samples(self, parent: Option<bool>, trace_id: &TraceId) -> bool {
        match (self, parent) {
            (TraceSampler::ParentBased(_), Some(is_sampled)) => is_sampled,
            (TraceSampler::ParentBased(share) | TraceSampler::Share(share), _) => share.has(trace_id),
        }
    }

    /// Whether no trace is ever sampled.
    pub(crate) fn is_off(self) -> bool {
        self == TraceSampler::Share(TraceShare::Nothing)
    }
}

impl std::fmt::Display for TraceSampler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (TraceSampler::Share(share) | TraceSampler::ParentBased(share)) = self;
        match share {
            TraceShare::All => f.write_str("all")?,
            TraceShare::Nothing => f.write_str("no")?,
            TraceShare::Below(bound) => {
                let percent = (*bound as f64 / (1u64 << 63) as f64 * 1e6).round() / 1e4;
                write!(f, "{percent} % of")?;
            }
        }
        match self {
            TraceSampler::Share(_) => f.write_str(" traces"),
            TraceSampler::ParentBased(_) => f.write_str(" new traces, and those that the caller samples"),
        }
    }
}

#[cfg(test)]
mod tests;
