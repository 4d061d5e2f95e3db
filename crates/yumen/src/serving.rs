//! Sockets and threads that serve traffic: bound or inherited listeners, and the workers.

pub(crate) mod http3_handovers;
pub(crate) mod listener_supervisor;
pub(crate) mod listeners;
pub(crate) mod socket_activation;
pub(crate) mod sockets;
pub(crate) mod worker_threads;
