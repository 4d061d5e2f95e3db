//! Tasks of a worker beside the one that runs. Knows the runtime, and the simulation that stands in for it.

/// Runs something beside what runs now, on the same thread.
pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) {
    #[cfg(test)]
    let Some(task) = crate::simulation::net::spawn(task) else { return };
    tokio::task::spawn_local(task);
}
