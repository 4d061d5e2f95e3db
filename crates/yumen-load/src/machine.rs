//! Facts of the machine and of processes from Linux. Unavailable facts stay empty.

use std::collections::BTreeMap;
use std::fs;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::error::LoadError;
use crate::summary::{GeneratorCost, GeneratorMachine};

/// File descriptors in addition to those of the connections.
const SPARE_FILES: u64 = 64;
/// Connections that the test upstream prepares for, if the limits allow.
const SERVER_CONNECTIONS: u64 = 500_000;

pub(crate) fn facts() -> GeneratorMachine {
    let kernel = read("/proc/sys/kernel/osrelease");
    GeneratorMachine {
        cpu: line_value(&read("/proc/cpuinfo"), "model name", ':').unwrap_or_default(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: kib(&read("/proc/meminfo"), "MemTotal").unwrap_or(0) * 1024,
        kernel: format!("{} {}", read("/proc/sys/kernel/ostype").trim(), kernel.trim()).trim().to_owned(),
        os: line_value(&read("/etc/os-release"), "PRETTY_NAME", '=')
            .unwrap_or_default()
            .trim_matches('"')
            .to_owned(),
    }
}

/// CPU time of this process so far, split into user and kernel time.
pub fn own_cost() -> GeneratorCost {
    let process_cpu = clock_gettime(ClockId::ProcessCPUTime);
    let total_ns = process_cpu.tv_sec as u64 * 1_000_000_000 + process_cpu.tv_nsec as u64;
    // The clock is exact but has only the total. The ticks have the split, but in coarse units.
    let stat = read("/proc/self/stat");
    let ticks = |index: usize| after_name(&stat).nth(index).and_then(|text| text.parse::<u64>().ok());
    // User and system time are fields 14 and 15 in proc(5); the first one here is field 3.
    let (user, system) = (ticks(11).unwrap_or(0), ticks(12).unwrap_or(0));
    // Within the first tick there is no split.
    let share = if user + system == 0 { 1.0 } else { user as f64 / (user + system) as f64 };
    let cpu_user_ns = (total_ns as f64 * share) as u64;
    GeneratorCost {
        cpu_user_ns,
        cpu_system_ns: total_ns - cpu_user_ns,
        rss_max_bytes: kib(&read("/proc/self/status"), "VmHWM").unwrap_or(0) * 1024,
    }
}

/// Cost incurred between two measurements.
pub(crate) fn cost_between(before: &GeneratorCost, after: &GeneratorCost) -> GeneratorCost {
    GeneratorCost {
        cpu_user_ns: after.cpu_user_ns.saturating_sub(before.cpu_user_ns),
        cpu_system_ns: after.cpu_system_ns.saturating_sub(before.cpu_system_ns),
        rss_max_bytes: after.rss_max_bytes,
    }
}

/// The processes and all their descendants.
pub(crate) fn with_children(pids: &[u32]) -> Vec<u32> {
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let stat = read(&format!("/proc/{pid}/stat"));
        // Field 4 in proc(5): the parent process.
        if let Some(parent) = after_name(&stat).nth(1).and_then(|text| text.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut found: Vec<u32> = Vec::new();
    let mut waiting = pids.to_vec();
    while let Some(pid) = waiting.pop() {
        // A process that is named twice, or below another named one, counts once.
        if !found.contains(&pid) {
            found.push(pid);
            waiting.extend(children.get(&pid).into_iter().flatten());
        }
    }
    found.sort_unstable();
    found
}

/// Sum of the resident memory of processes in bytes.
pub(crate) fn rss_bytes(pids: &[u32]) -> u64 {
    let of = |pid: &u32| kib(&read(&format!("/proc/{pid}/status")), "VmRSS").unwrap_or(0) * 1024;
    pids.iter().map(of).sum()
}

/// Raises the limit on open files for `connections`, or fails with the required number.
pub(crate) fn allow_open_files(connections: u64) -> Result<(), LoadError> {
    let files_needed = connections + SPARE_FILES;
    let limit = getrlimit(Resource::Nofile);
    // `None` is no limit.
    if limit.current.is_none_or(|current| current >= files_needed) {
        return Ok(());
    }
    // A privileged process raises the hard limit too; for others, the hard limit is the bound.
    let raised = Rlimit {
        current: Some(files_needed),
        maximum: limit.maximum.map(|maximum| maximum.max(files_needed)),
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| {
        let maximum = limit.maximum.unwrap_or(0);
        LoadError::Plan(format!(
            "{connections} connections need {files_needed} open files; at most {maximum} are allowed (ulimit -n)"
        ))
    })
}

/// Raises the limit on open files for a server, as far as allowed.
pub(crate) fn allow_many_open_files() {
    if allow_open_files(SERVER_CONNECTIONS).is_err() {
        let maximum = getrlimit(Resource::Nofile).maximum;
        // The former limit suffices in most cases.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Fields of a `stat` line after the process name, which may contain blanks.
fn after_name(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_ascii_whitespace()
}

fn line_value(text: &str, name: &str, separator: char) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(separator)?.1.trim().to_owned())
}

fn kib(text: &str, name: &str) -> Option<u64> {
    line_value(text, name, ':')?.trim_end_matches("kB").trim().parse().ok()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
