//! Regular expressions of schemas, compiled once per thread.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use regex::Regex;

/// Bound of cached patterns, since schemas may come from users.
const REMEMBERED_MAX: usize = 1024;

thread_local! {
    static COMPILED: RefCell<HashMap<String, Option<Rc<Regex>>>> = RefCell::new(HashMap::new());
}

/// The compiled pattern; `None` if the linear-time engine cannot compile it.
pub(super) fn compiled(pattern: &str) -> Option<Rc<Regex>> {
    COMPILED.with_borrow_mut(|table| {
        if let Some(known) = table.get(pattern) {
            return known.clone();
        }
        if table.len() >= REMEMBERED_MAX {
            table.clear();
        }
        let regex = Regex::new(pattern).ok().map(Rc::new);
        table.insert(pattern.to_owned(), regex.clone());
        regex
    })
}
