//! Numbers of objects whose schema has no bound, or a larger one than ours. A number beyond the bound counts as the bound:
//! an object that does not decode would have no status, and after a restart no effect.

use serde::{Deserialize, Deserializer};
use serde_json::Number;

/// A count from 0.
pub(super) fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    Ok(optional_count(deserializer)?.unwrap_or_default())
}

/// A count from 0, or `null`.
pub(super) fn optional_count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    Ok(Option::<Number>::deserialize(deserializer)?.map(|number| {
        // The conversion from a float saturates.
        let whole = number.as_u64().or_else(|| number.as_f64().map(|float| float as u64));
        u32::try_from(whole.unwrap_or_default()).unwrap_or(u32::MAX)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_beyond_the_bound_counts_as_the_bound() {
        for (text, expected) in [
            ("7", Some(7)),
            ("0", Some(0)),
            ("-1", Some(0)),
            ("4294967295", Some(u32::MAX)),
            ("5000000000", Some(u32::MAX)),
            ("18446744073709551616", Some(u32::MAX)),
            ("2.5", Some(2)),
            ("null", None),
        ] {
            let read = optional_count(&mut serde_json::Deserializer::from_str(text));
            assert_eq!(read.unwrap(), expected, "{text}");
        }
    }
}
