//! Memory of ended exchanges, retained by the worker for the next ones.

use std::cell::RefCell;

use yumen_http::{Fields, RequestHead};

use crate::settings::EXCHANGES_KEPT;

/// A list of fields retains at most this number of bytes.
const FIELDS_BYTES_MAX: usize = 4096;

/// Request heads and lists of fields that are free for reuse.
#[derive(Default)]
pub(super) struct RecycledMemory {
    #[expect(clippy::vec_box, reason = "passing a head on moves a pointer")]
    heads: RefCell<Vec<Box<RequestHead>>>,
    fields: RefCell<Vec<Fields>>,
}

impl RecycledMemory {
    pub(super) fn take_head(&self) -> Box<RequestHead> {
        self.heads.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn keep_head(&self, mut head: Box<RequestHead>) {
        let mut pool = self.heads.borrow_mut();
        if pool.len() < EXCHANGES_KEPT {
            head.clear();
            pool.push(head);
        }
    }

    pub(super) fn take_fields(&self) -> Fields {
        self.fields.borrow_mut().pop().unwrap_or_default()
    }

    pub(super) fn keep_fields(&self, mut fields: Fields) {
        let mut pool = self.fields.borrow_mut();
        // A list without capacity owns no memory that is worth retaining.
        if fields.capacity() > 0 && pool.len() < EXCHANGES_KEPT {
            fields.clear(FIELDS_BYTES_MAX);
            pool.push(fields);
        }
    }
}
