//! Operating system interface of the process: open files, CPUs, priorities, and the path of the program.

pub(crate) mod log_file;
pub(crate) mod memory;
pub(crate) mod node_log;
pub(crate) mod private_file;
pub(crate) mod service;
pub(crate) mod signals;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::PathBuf;

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricSource, MetricValue};
use yumen_config::node::{CpuAffinity, CpuMode};
use yumen_plugin::vars::ProcessVars;

/// Host name; empty if unknown.
pub(crate) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

/// Sets the process variables for templates.
pub(crate) fn set_process_vars() {
    ProcessVars { hostname: host_name().into(), pid: std::process::id() }.set_for_process();
}

/// Node metric under the name of APISIX.
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

/// Raises the limit of open files to the hard limit; returns the new limit.
pub(crate) fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    // Each connection needs a descriptor, and the soft limit is often 1024.
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    // On failure the current limit applies.
    let _ = setrlimit(Resource::Nofile, raised);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Processes with a UDP socket on a port, as far as this process may inspect others.
pub(crate) fn with_datagrams_at(port: u16) -> Vec<u32> {
    let mut sockets = BTreeMap::new();
    for table in ["/proc/net/udp", "/proc/net/udp6"] {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        sockets.extend(inodes_at(port, &table).into_iter().map(|socket| (socket, port)));
    }
    holders_of(&sockets).remove(&port).into_iter().flatten().collect()
}

/// The processes that listen on TCP ports, as text by port, as far as this process may inspect others.
pub(crate) fn with_tcp_listeners_at(ports: &BTreeSet<u16>) -> BTreeMap<u16, Vec<String>> {
    let mut sockets = BTreeMap::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let table = std::fs::read_to_string(table).unwrap_or_default();
        // The state of a listening socket is 0A (proc_pid_net(5)).
        let listening = table.lines().filter(|line| line.split_whitespace().nth(3) == Some("0A"));
        let listening = listening.collect::<Vec<_>>().join("\n");
        for port in ports {
            sockets.extend(inodes_at(*port, &listening).into_iter().map(|socket| (socket, *port)));
        }
    }
    let describe = |pid: u32| match pid == std::process::id() {
        true => "this process".to_owned(),
        false => {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("process {pid} ({})", name.trim())
        }
    };
    let holders = holders_of(&sockets).into_iter();
    holders.map(|(port, pids)| (port, pids.into_iter().map(describe).collect())).collect()
}

/// The processes that hold sockets, by the port of each.
fn holders_of(sockets: &BTreeMap<String, u16>) -> BTreeMap<u16, BTreeSet<u32>> {
    let mut holders = BTreeMap::<u16, BTreeSet<u32>>::new();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<u32>().ok());
    // Most calls find no socket: skip the scan of all processes then.
    for pid in pids.filter(|_| !sockets.is_empty()) {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        for target in open.filter_map(|file| std::fs::read_link(file.path()).ok()) {
            if let Some(port) = target.to_str().and_then(|target| sockets.get(target)) {
                holders.entry(*port).or_default().insert(pid);
            }
        }
    }
    holders
}

/// Link targets (`socket:[inode]`) of a port's sockets, from a table in the format of /proc/net/udp.
fn inodes_at(port: u16, table: &str) -> Vec<String> {
    let inode_of = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        let (_, found) = fields.next()?.rsplit_once(':')?;
        let is_match = u16::from_str_radix(found, 16).ok()? == port;
        let inode = fields.nth(7)?;
        is_match.then(|| format!("socket:[{inode}]"))
    };
    table.lines().filter_map(inode_of).collect()
}

/// Descendants of a process, over all its threads, as far as procfs shows them.
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

/// Kills a process; no error if it has ended.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Nice value of control threads relative to that of workers.
const CONFIGURATION_NICE: i32 = -5;

/// Raises the priority of the threads that the calling thread will start, if permitted. They use little CPU,
/// and a change waits for several of them in turn. Returns the nice value for workers.
pub(crate) fn raise_control_priority() -> i32 {
    let Ok(before) = rustix::process::getpriority_process(None) else { return 0 };
    // Without CAP_SYS_NICE all threads have the same priority.
    let _ = rustix::process::setpriority_process(None, before + CONFIGURATION_NICE);
    before
}

/// Writes the pid of this process to a file, atomically; an empty path means none.
pub(crate) fn write_pid_file(path: &str) -> std::io::Result<()> {
    if path.is_empty() {
        return Ok(());
    }
    let draft = format!("{path}.new");
    std::fs::write(&draft, format!("{}\n", std::process::id()))?;
    std::fs::rename(&draft, path)
}

/// Removes the pid file, unless it contains the pid of another process.
pub(crate) fn remove_pid_file(path: &str) {
    let own = std::process::id().to_string();
    // The successor may have written its own pid to the same file.
    if !path.is_empty() && std::fs::read_to_string(path).is_ok_and(|number| number.trim() == own) {
        let _ = std::fs::remove_file(path);
    }
}

/// Resets the calling thread to the nice value of the process start.
pub(crate) fn reset_nice(base_nice: i32) {
    // If this is refused, raising was refused too.
    let _ = rustix::process::setpriority_process(None, base_nice);
}

/// Path from which this program was started; the file there may have been replaced since. Call before the
/// working directory changes.
pub(crate) fn program() -> PathBuf {
    let called = std::env::args_os().next().unwrap_or_default();
    // By the name and not by `/proc/self/exe`, which names the file that was replaced.
    let is_path = called.to_string_lossy().contains('/');
    let found = match is_path {
        true => std::path::absolute(&called).ok(),
        false => on_path(&called),
    };
    found.or_else(|| std::env::current_exe().ok()).unwrap_or_else(|| called.into())
}

fn on_path(name: &OsStr) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|directory| directory.join(name)).find(|path| path.is_file())
}

/// Default placement and priority of workers.
#[derive(Debug, Clone)]
pub(crate) struct WorkerPlacement {
    pub(crate) cpus: Vec<usize>,
    /// Nice value with which the process was started.
    pub(crate) base_nice: i32,
}

/// CPUs that this process may run on.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(None) {
        Ok(set) => (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => vec![0],
    }
}

/// Pins the calling worker thread and sets its priority, as configured.
pub(crate) fn set_worker_affinity(worker: usize, affinity: &CpuAffinity, nice: i32, allowed: &[usize]) {
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
    // Setting an unchanged value may fail for lack of a capability.
    let is_match = rustix::process::getpriority_process(None) == Ok(nice);
    if !is_match && let Err(error) = rustix::process::setpriority_process(None, nice) {
        tracing::warn!(worker, nice, %error, "worker priority could not be set");
    }
}
