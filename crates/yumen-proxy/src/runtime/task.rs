//! Tasks of a worker. This file knows the runtime and its replacement in the simulation.

/// Spawns a task on the thread of the worker.
pub(crate) fn spawn(task: impl Future<Output = ()> + 'static) {
    #[cfg(test)]
    let Some(task) = crate::simulation::net::spawn(task) else { return };
    tokio::task::spawn_local(task);
}
