//! The `Date` field (RFC 9110 §6.6.1), serialized once per second.

use std::cell::{Cell, RefCell};
use std::time::{Duration, UNIX_EPOCH};

use crate::runtime::clock;

/// Date line of a worker.
#[derive(Default)]
pub(crate) struct DateCache {
    second: Cell<u64>,
    line: RefCell<Vec<u8>>,
}

impl DateCache {
    /// Appends the `Date` field line with its line end.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let second = clock::now().unix_s();
        if second != self.second.get() {
            let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
            *self.line.borrow_mut() = format!("Date: {date}\r\n").into_bytes();
            self.second.set(second);
        }
        out.extend_from_slice(&self.line.borrow());
    }
}
