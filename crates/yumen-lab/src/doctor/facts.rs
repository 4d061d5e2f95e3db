//! Facts of the machine from `/proc`, `/sys` and resource limits. Linux only; missing facts are `None`.

use std::fs;
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::record::{CpuPinning, MachineRecord};

/// Input of the doctor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineFacts {
    /// `fs.file-max`.
    pub file_max: Option<u64>,
    /// Hard limit of open files.
    pub files_hard: Option<u64>,
    /// `net.core.somaxconn`.
    pub somaxconn: Option<u64>,
    /// `net.ipv4.tcp_max_syn_backlog`.
    pub syn_backlog: Option<u64>,
    /// First and last local port.
    pub port_range: Option<(u16, u16)>,
    /// `net.ipv4.tcp_tw_reuse`.
    pub tw_reuse: Option<u64>,
    /// Tracked connections and their limit, if connection tracking is loaded.
    pub conntrack: Option<(u64, u64)>,
    /// Processors available to this process.
    pub cpus: usize,
    /// Processors allowed by a cgroup quota.
    pub cpu_quota: Option<f64>,
    /// Whether two processors share a core.
    pub hyper_threads: Option<bool>,
    /// Share of stolen processor time during the observation.
    pub stolen: Option<f64>,
    /// Share of processor time used by any program during the observation.
    pub busy: Option<f64>,
    /// Governor of the first processor.
    pub governor: Option<String>,
    /// Product name from the firmware.
    pub product: Option<String>,
}

impl MachineFacts {
    /// Reads all facts; takes `watched` for the observation of the processors.
    pub fn gather(watched: Duration) -> MachineFacts {
        let before = CpuTimes::now();
        std::thread::sleep(watched);
        let times = before.zip(CpuTimes::now()).map(|(before, after)| after.since(before));
        MachineFacts {
            file_max: number("/proc/sys/fs/file-max"),
            files_hard: Some(getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX)),
            somaxconn: number("/proc/sys/net/core/somaxconn"),
            syn_backlog: number("/proc/sys/net/ipv4/tcp_max_syn_backlog"),
            port_range: port_range(),
            tw_reuse: number("/proc/sys/net/ipv4/tcp_tw_reuse"),
            conntrack: number("/proc/sys/net/netfilter/nf_conntrack_count")
                .zip(number("/proc/sys/net/netfilter/nf_conntrack_max")),
            cpus: allowed_cpus().len(),
            cpu_quota: cpu_quota(),
            hyper_threads: hyper_threads(),
            stolen: times.map(|times| times.share(times.stolen)),
            busy: times.map(|times| times.share(times.total - times.idle)),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            product: line("/sys/devices/virtual/dmi/id/product_name"),
        }
    }

    /// The facts that a record contains.
    pub fn machine(&self, pinning: CpuPinning) -> MachineRecord {
        let cpu = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let memory_kib =
            field("/proc/meminfo", "MemTotal").and_then(|text| text.split(' ').next()?.parse().ok());
        let release = line("/proc/sys/kernel/osrelease").unwrap_or_default();
        let os = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let pretty = os.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
        MachineRecord {
            cpu,
            cpus: self.cpus,
            hyper_threads: self.hyper_threads,
            memory_bytes: memory_kib.unwrap_or(0_u64) * 1024,
            kernel: format!("Linux {release}"),
            os: pretty.unwrap_or("unknown").trim_matches('"').to_owned(),
            governor: self.governor.clone(),
            hypervisor: line("/sys/hypervisor/type").or_else(|| self.product.clone()),
            pinning,
        }
    }
}

/// Raises the soft limit of open files to the hard one, for this process and its children.
pub fn raise_file_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // The doctor reports a limit that cannot be raised.
    let _ = setrlimit(Resource::Nofile, limit);
}

/// Processors available to this process, by number.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return vec![0] };
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

/// Processor time of the machine since boot, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTimes {
    total: u64,
    idle: u64,
    stolen: u64,
}

impl CpuTimes {
    /// Reads the current values; `None` if the kernel does not provide them.
    pub fn now() -> Option<CpuTimes> {
        CpuTimes::read(&fs::read_to_string("/proc/stat").ok()?)
    }

    /// Parses the first line of `/proc/stat`: user, nice, system, idle, iowait, irq, softirq, steal.
    pub(super) fn read(text: &str) -> Option<CpuTimes> {
        let ticks = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<u64> = ticks.take(8).map(|tick| tick.parse().ok()).collect::<Option<_>>()?;
        let idle = ticks.get(3)? + ticks.get(4)?;
        Some(CpuTimes { total: ticks.iter().sum(), idle, stolen: *ticks.get(7)? })
    }

    fn since(self, before: CpuTimes) -> CpuTimes {
        CpuTimes {
            total: self.total.saturating_sub(before.total),
            idle: self.idle.saturating_sub(before.idle),
            stolen: self.stolen.saturating_sub(before.stolen),
        }
    }

    fn share(self, part: u64) -> f64 {
        if self.total == 0 { 0.0 } else { part as f64 / self.total as f64 }
    }

    /// Share of processor time in use between `before` and `self`.
    pub fn busy_since(self, before: CpuTimes) -> f64 {
        let times = self.since(before);
        times.share(times.total - times.idle)
    }

    /// Share of processor time stolen between `before` and `self`.
    pub fn stolen_since(self, before: CpuTimes) -> f64 {
        let times = self.since(before);
        times.share(times.stolen)
    }
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn number<T: FromStr>(path: &str) -> Option<T> {
    line(path)?.parse().ok()
}

/// Value after `name:`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let found = text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name);
    found.map(|(_, value)| value.trim().to_owned())
}

fn port_range() -> Option<(u16, u16)> {
    let text = line("/proc/sys/net/ipv4/ip_local_port_range")?;
    let (low, high) = text.split_once(char::is_whitespace)?;
    Some((low.parse().ok()?, high.trim().parse().ok()?))
}

/// Parses `max 100000` or `200000 100000`, in microseconds, of the cgroup visible to this process.
fn cpu_quota() -> Option<f64> {
    let text = line("/sys/fs/cgroup/cpu.max")?;
    let (quota, period) = text.split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

fn hyper_threads() -> Option<bool> {
    let siblings = line("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")?;
    Some(siblings.contains([',', '-']))
}
