//! A buffered request body, with the values that variables have found in it.
//!
//! The index lives exactly as long as the bytes that it describes.

use std::cell::OnceCell;
use std::ops::Deref;

use crate::vars::{BodyIndex, GraphqlOperation};

/// The bytes of a buffered request body. They are replaced, never changed, so that their index stays valid.
#[derive(Debug, Default)]
pub struct BufferedBody {
    bytes: Vec<u8>,
    pub(crate) index: OnceCell<BodyIndex>,
    pub(crate) operation: OnceCell<Option<GraphqlOperation>>,
}

impl BufferedBody {
    /// Returns the bytes, for a plugin that replaces the body.
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
