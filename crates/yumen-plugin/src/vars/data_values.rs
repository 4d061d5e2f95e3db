//! Settings that come from a reference such as `$env://NAME`: data, whatever characters they contain.
//!
//! Every template is parsed from a whole setting, so text that equals such a value is the value. Recording
//! the values here spares plugins from tracking the origin of each setting.

use std::cell::RefCell;

thread_local! {
    static DATA_VALUES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Runs `work` with these texts registered as data.
pub fn with_data_values<T>(values: Vec<String>, work: impl FnOnce() -> T) -> T {
    let outer = DATA_VALUES.replace(values);
    let done = work();
    DATA_VALUES.set(outer);
    done
}

/// Whether a whole setting is data, so that a dollar sign in it starts no variable.
pub fn is_data_value(text: &str) -> bool {
    DATA_VALUES.with_borrow(|values| values.iter().any(|value| value == text))
}
