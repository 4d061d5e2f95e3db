//! A buffered request body, with the values that variables found in it. They never outlive the bytes.

use std::cell::OnceCell;
use std::ops::Deref;

use crate::vars::{BodyIndex, GraphqlOperation};

/// A buffered request body. Its bytes can only be replaced as a whole, so that its index remains valid.
#[derive(Debug, Default)]
pub struct BufferedBody {
    bytes: Vec<u8>,
    pub(crate) index: OnceCell<BodyIndex>,
    pub(crate) operation: OnceCell<Option<GraphqlOperation>>,
}

impl BufferedBody {
    /// The bytes, for a plugin that replaces the body.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deref for BufferedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl From<Vec<u8>> for BufferedBody {
    fn from(bytes: Vec<u8>) -> BufferedBody {
        BufferedBody { bytes, ..BufferedBody::default() }
    }
}
