//! The movement of bytes from one stream to another, in bounded memory and in turns.
//!
//! Must not depend on heads, plugins, endpoints or the `Worker`: a copy borrows the parts of a worker that it
//! uses, as a `CopyContext`.

pub(crate) mod body_edit;
mod context;
pub(crate) mod one_way_copy;
pub(crate) mod splice;
pub(crate) mod transfer;
pub(crate) mod tunnel_binding;

pub(crate) use context::CopyContext;
