//! What the process asks of the system: open files, cores, priorities, and where its program is.

use std::ffi::OsStr;
use std::path::PathBuf;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_config::node::{CpuAffinity, CpuMode};
use yumen_plugin::vars::ProcessVars;

/// The host's name; empty where it has none.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Has variables tell this process.
pub(crate) fn set_process_vars() {
    ProcessVars { hostname: host_name().into(), pid: std::process::id() }.tell();
}

/// The node by the name of APISIX.
pub(crate) struct NodeInfo;

impl MetricSource for NodeInfo {
    fn gather(&self, out: &mut Vec<MetricFamily>) {
        let labels = vec![("hostname", host_name()), ("version", env!("CARGO_PKG_VERSION").to_owned())];
        out.push(MetricFamily {
            name: "apisix_node_info".into(),
            help: "Always 1; the labels describe the node.".into(),
            kind: MetricKind::Gauge,
            samples: vec![MetricSeries { labels, value: MetricValue::Number(1.0) }],
        });
    }
}

/// Raises the number of open files to what the system allows; says what it is now.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // Where it may not be raised, what there is must do.
    let _ = setrlimit(Resource::Nofile, wanted);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// The processes with a socket for datagrams at a port, as far as this one may look.
pub(crate) fn with_datagrams_at(port: u16) -> Vec<u32> {
    let inodes: Vec<String> = ["/proc/net/udp", "/proc/net/udp6"]
        .iter()
        .flat_map(|table| inodes_at(port, &std::fs::read_to_string(table).unwrap_or_default()))
        .collect();
    let has_one = |pid: &u32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        open.filter_map(|file| std::fs::read_link(file.path()).ok())
            .any(|leads_to| inodes.iter().any(|inode| leads_to.as_os_str() == inode.as_str()))
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse().ok());
    // Most have none: nobody is looked at for nothing.
    pids.filter(|pid| !inodes.is_empty() && has_one(pid)).collect()
}

/// What descriptors of a port's sockets lead to, of a table as the system shows it.
fn inodes_at(port: u16, table: &str) -> Vec<String> {
    let inode_of = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (_, found) = fields.next()?.rsplit_once(':')?;
        let is_there = u16::from_str_radix(found, 16).ok()? == port;
        let inode = fields.nth(7)?;
        is_there.then(|| format!("socket:[{inode}]"))
    };
    table.lines().filter_map(inode_of).collect()
}

/// The processes that a process has started, by any of its threads, and what those have, as far as the system tells.
pub(crate) fn descendants(pid: u32) -> Vec<u32> {
    let mut found = Vec::new();
    let mut next = vec![pid];
    while let Some(pid) = next.pop() {
        let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let listed =
            threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
        let children: Vec<u32> = listed
            .flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<_>>())
            .collect();
        next.extend(&children);
        found.extend(children);
    }
    found
}

/// Ends a process at once; one that has gone is as it should be.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// How much earlier than traffic the threads of the configuration are served.
const CONFIGURATION_NICE: i32 = -5;

/// Has the threads that the calling one will start served before those of traffic, where that is allowed:
/// they work little and seldom, and a change waits for several of them in turn. Gives the nice value
/// that workers go back to.
pub(crate) fn raise_control_priority() -> i32 {
    let Ok(before) = rustix::process::getpriority_process(None) else { return 0 };
    // Without the privilege all threads are alike.
    let _ = rustix::process::setpriority_process(None, before + CONFIGURATION_NICE);
    before
}

/// Writes the number of this process to a file, if one is named; whoever reads sees it whole.
pub(crate) fn write_pid_file(place: &str) -> std::io::Result<()> {
    if place.is_empty() {
        return Ok(());
    }
    let draft = format!("{place}.new");
    std::fs::write(&draft, format!("{}\n", std::process::id()))?;
    std::fs::rename(&draft, place)
}

/// Removes the file, unless another process has written its own number there.
pub(crate) fn remove_pid_file(place: &str) {
    let own = std::process::id().to_string();
    if !place.is_empty() && std::fs::read_to_string(place).is_ok_and(|number| number.trim() == own) {
        let _ = std::fs::remove_file(place);
    }
}

/// Gives the calling thread the nice value the process was started with.
pub(crate) fn reset_nice(base_nice: i32) {
    // Where that is refused the thread was no other before.
    let _ = rustix::process::setpriority_process(None, base_nice);
}

/// The path this program was started by, which may lead to another file by now. To be asked before anything
/// changes the directory.
pub(crate) fn program() -> PathBuf {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_path = called.to_string_lossy().contains('/');
    let found = match is_path {
        true => std::path::absolute(&called).ok(),
        false => on_path(&called),
    };
    found.or_else(|| std::env::current_exe().ok()).unwrap_or_else(|| called.into())
}

fn on_path(name: &OsStr) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|place| place.is_file())
}

/// Where workers run, and how they stand to others, where their configuration does not say.
#[derive(Debug, Clone)]
pub(crate) struct WorkerPlacement {
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
pub(crate) fn place_worker(worker: usize, affinity: &CpuAffinity, nice: i32, allowed: &[usize]) {
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
