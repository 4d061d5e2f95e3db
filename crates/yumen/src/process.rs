//! What the process asks of the system: open files, cores, priorities.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use yumen_config::node::{CpuAffinity, CpuMode};

/// Raises the number of open files to what the system allows; says what it is now.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it may not be raised, what there is must do.
    let _ = setrlimit(Resource::Nofile, wanted);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How much earlier than traffic the threads of the configuration are served.
const CONFIGURATION_NICE: i32 = -5;

/// Has the threads that the calling one will start served before those of traffic, where that is allowed:
/// they work little and seldom, and a change waits for several of them in turn. Gives the nice value
/// that workers go back to.
pub(crate) fn favour_configuration() -> i32 {
    let Ok(before) = rustix::process::getpriority_process(None) else { return 0 };
    // Without the privilege all threads are alike.
    let _ = rustix::process::setpriority_process(None, before + CONFIGURATION_NICE);
    before
}

/// Where workers run, and how they stand to others, where their configuration does not say.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub(crate) cpus: Vec<usize>,
    /// The nice value the process was started with.
    pub(crate) base_nice: i32,
}

/// The processors this process may run on.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Pins the calling worker's thread and sets its priority, as configured.
pub(crate) fn settle_worker(worker: usize, affinity: &CpuAffinity, nice: i32, allowed: &[usize]) {
    let cpu = match affinity {
        CpuAffinity::Mode(CpuMode::None) => None,
        CpuAffinity::Mode(CpuMode::Auto) => allowed.get(worker % allowed.len().max(1)).copied(),
        CpuAffinity::Cpus(cpus) => cpus.get(worker % cpus.len().max(1)).map(|cpu| *cpu as usize),
    };
    if let Some(cpu) = cpu.filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(cpu);
        if let Err(error) = sched_setaffinity(None, &set) {
            tracing::warn!(worker, cpu, %error, "worker could not be pinned");
        }
    }
    let is_there = rustix::process::getpriority_process(None) == Ok(nice);
    if !is_there && let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::warn!(worker, nice, %error, "worker priority could not be set");
    }
}
