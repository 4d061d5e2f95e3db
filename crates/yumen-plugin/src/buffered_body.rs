//! A request body that was read whole, with what variables found in it so far.
//!
//! Knows nothing of who reads it; what was found never outlives the bytes it was found in.

use std::cell::OnceCell;
use std::ops::Deref;

use crate::vars::{BodyIndex, GraphqlOperation};

/// The bytes of a buffered request body. They cannot be changed, only replaced, so that an index of them stays right.
#[derive(Debug, Default)]
pub struct BufferedBody {
    bytes: Vec<u8>,
    pub(crate) index: OnceCell<BodyIndex>,
    pub(crate) operation: OnceCell<Option<GraphqlOperation>>,
}

impl BufferedBody {
    /// The bytes, for a plugin that makes another body of them.
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
