//! The part of a UDP listener that its owner controls.

use std::cell::Cell;

use yumen_plugin::ListenerNumber;

use crate::runtime::close_signal::CloseSignal;

/// Settings of the sessions of one listener, and its end. By default, of a listener of the node's settings.
#[derive(Default)]
pub(crate) struct DatagramControl {
    /// The listener that new sessions belong to.
    pub(crate) number: Cell<ListenerNumber>,
    /// See [`yumen_plugin::ClientInfo::mapped_port`].
    pub(crate) mapped_port: Cell<u16>,
    /// Ends the listener after its last call.
    pub(crate) close: CloseSignal,
    /// Set after the last call: all sessions end.
    pub(super) is_closed: Cell<bool>,
}
