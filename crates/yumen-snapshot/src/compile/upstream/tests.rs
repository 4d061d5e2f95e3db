//! What users write, in the units of the machine.

use super::millis;

#[test]
fn seconds_become_milliseconds_that_can_be_added_to_any_time() {
    const TEN_YEARS_MS: u64 = 315_360_000_000;
    for (seconds, expected) in
        [(0.0, 0), (0.0001, 1), (1.5, 1500), (-1.0, 0), (1e17, TEN_YEARS_MS), (f64::MAX, TEN_YEARS_MS)]
    {
        assert_eq!(millis(seconds), expected, "{seconds}");
    }
}
