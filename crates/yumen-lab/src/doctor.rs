//! Requirements of a run on the machine. `facts` reads the machine, `examine` is pure.

pub mod facts;

#[cfg(test)]
mod tests;

use crate::record::{DoctorFinding, FindingLevel};
pub use facts::MachineFacts;

/// Requirements of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineNeeds {
    /// Maximum number of concurrent connections.
    pub connections: u64,
    /// Whether each request opens a connection, whose port stays in TIME-WAIT for a minute.
    pub short_connections: bool,
}

/// Returns all findings, in the order of fixing them.
pub fn examine(facts: &MachineFacts, needs: MachineNeeds) -> Vec<DoctorFinding> {
    let mut findings = vec![
        files_of_system(facts, needs),
        files_of_process(facts, needs),
        queue("net.core.somaxconn", facts.somaxconn, needs),
        queue("net.ipv4.tcp_max_syn_backlog", facts.syn_backlog, needs),
        ports(facts, needs),
        reuse(facts, needs),
        conntrack(facts, needs),
    ];
    findings.extend([cpus(facts), quota(facts), threads(facts), stolen_time(facts), busy(facts)]);
    findings.extend([governor(facts), burstable(facts)]);
    findings
}

fn finding(name: &str, level: FindingLevel, found: impl ToString, wanted: impl ToString) -> DoctorFinding {
    DoctorFinding {
        name: name.to_owned(),
        level,
        found: found.to_string(),
        wanted: wanted.to_string(),
        hint: None,
    }
}

impl DoctorFinding {
    fn hint(mut self, hint: impl Into<String>) -> DoctorFinding {
        // Advice without a problem would only distract.
        if self.level >= FindingLevel::Warning {
            self.hint = Some(hint.into());
        }
        self
    }
}

fn unknown(name: &str, wanted: impl ToString) -> DoctorFinding {
    finding(name, FindingLevel::Unknown, "unknown on this machine", wanted)
}

/// Returns `Ok` if `good`, else the given level.
fn level(good: bool, otherwise: FindingLevel) -> FindingLevel {
    if good { FindingLevel::Ok } else { otherwise }
}

fn files_of_system(facts: &MachineFacts, needs: MachineNeeds) -> DoctorFinding {
    let name = "fs.file-max";
    // A connection uses one descriptor at the generator, two at the gateway and one at the upstream.
    let wanted = needs.connections * 4 + 10_000;
    let Some(found) = facts.file_max else { return unknown(name, wanted) };
    finding(name, level(found >= wanted, FindingLevel::Problem), found, format!("{wanted} or more"))
        .hint(format!("sysctl -w fs.file-max={wanted}"))
}

fn files_of_process(facts: &MachineFacts, needs: MachineNeeds) -> DoctorFinding {
    let name = "open files of a process";
    // A gateway has two descriptors per connection, one for each side.
    let wanted = needs.connections * 2 + 2_048;
    let Some(found) = facts.files_hard else { return unknown(name, wanted) };
    finding(
        name,
        level(found >= wanted, FindingLevel::Problem),
        found,
        format!("{wanted} or more (hard limit)"),
    )
    .hint(format!("ulimit -Hn {wanted} as root, or LimitNOFILE= of the service"))
}

fn queue(name: &str, found: Option<u64>, needs: MachineNeeds) -> DoctorFinding {
    // In the worst case, all connections arrive before the first accept.
    let wanted = needs.connections.clamp(1_024, 65_535);
    let Some(found) = found else { return unknown(name, wanted) };
    finding(name, level(found >= wanted, FindingLevel::Warning), found, format!("{wanted} or more")).hint(
        format!("sysctl -w {name}=65535; a queue that overflows shows as connect errors and 1 s latencies"),
    )
}

fn ports(facts: &MachineFacts, needs: MachineNeeds) -> DoctorFinding {
    let name = "net.ipv4.ip_local_port_range";
    // Each request may open a connection to the gateway, and the gateway one to the upstream.
    let wanted = if needs.short_connections { 50_000 } else { 20_000 };
    let Some((low, high)) = facts.port_range else { return unknown(name, wanted) };
    let count = u64::from(high).saturating_sub(u64::from(low)) + 1;
    finding(name, level(count >= wanted, FindingLevel::Warning), format!("{low} to {high}: {count} ports"), format!("{wanted} or more"))
        .hint("sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"; or give the generator several source addresses")
}

fn reuse(facts: &MachineFacts, needs: MachineNeeds) -> DoctorFinding {
    let name = "net.ipv4.tcp_tw_reuse";
    let Some(found) = facts.tw_reuse else { return unknown(name, "1 or 2") };
    // Kept connections leave few ports in TIME-WAIT.
    let good = found > 0 || !needs.short_connections;
    finding(name, level(good, FindingLevel::Warning), found, "1 (everywhere) or 2 (loopback)").hint(
        "sysctl -w net.ipv4.tcp_tw_reuse=1; without it ports run out at some 500 new connections per second",
    )
}

fn conntrack(facts: &MachineFacts, needs: MachineNeeds) -> DoctorFinding {
    let name = "connection tracking";
    let Some((count, max)) = facts.conntrack else {
        // Without the module, no table can overflow.
        return finding(name, FindingLevel::Ok, "not loaded", "not loaded, or room for every connection");
    };
    let wanted = needs.connections * 2 + if needs.short_connections { 500_000 } else { 10_000 };
    finding(
        name,
        level(max >= count + wanted, FindingLevel::Warning),
        format!("{count} of {max} in use"),
        format!("room for {wanted}"),
    )
    .hint("sysctl -w net.netfilter.nf_conntrack_max=1048576, or leave the loopback untracked")
}

fn cpus(facts: &MachineFacts) -> DoctorFinding {
    finding("processors", level(facts.cpus >= 3, FindingLevel::Warning), facts.cpus, "3 or more: gateway, upstream and generator apart")
        .hint("with 2, upstream and generator share one; with 1, everything shares it and only CPU time per request means something")
}

fn quota(facts: &MachineFacts) -> DoctorFinding {
    let name = "processor quota";
    let Some(quota) = facts.cpu_quota else { return finding(name, FindingLevel::Ok, "none", "none") };
    let enough = quota >= facts.cpus as f64;
    finding(name, level(enough, FindingLevel::Problem), format!("{quota:.1} processors of {}", facts.cpus), "none below the count")
        .hint("the container's quota stops every part at once in the middle of a run; lift it (docker --cpus, cgroup cpu.max)")
}

fn threads(facts: &MachineFacts) -> DoctorFinding {
    let name = "hyper-threads";
    let Some(shared) = facts.hyper_threads else { return unknown(name, "off, or parts on different cores") };
    let found = if shared { "two processors share a core" } else { "off" };
    finding(name, level(!shared, FindingLevel::Warning), found, "off, or parts on different cores")
        .hint("parts that share a core slow each other; echo off > /sys/devices/system/cpu/smt/control")
}

fn stolen_time(facts: &MachineFacts) -> DoctorFinding {
    let name = "stolen processor time";
    let Some(share) = facts.stolen else { return unknown(name, "below 1 %") };
    finding(name, level(share < 0.01, FindingLevel::Warning), format!("{:.1} %", share * 100.0), "below 1 %")
        .hint("the host gives time to others; take a machine of its own, and more rounds")
}

fn busy(facts: &MachineFacts) -> DoctorFinding {
    let name = "other programs";
    let Some(share) = facts.busy else { return unknown(name, "idle") };
    finding(
        name,
        level(share < 0.1, FindingLevel::Warning),
        format!("{:.0} % of the processors busy", share * 100.0),
        "below 10 %",
    )
    .hint("end what else runs; figures of a busy machine belong to that machine")
}

fn governor(facts: &MachineFacts) -> DoctorFinding {
    let name = "frequency governor";
    let Some(found) = &facts.governor else { return unknown(name, "performance") };
    finding(name, level(found == "performance", FindingLevel::Warning), found, "performance")
        .hint("cpupower frequency-set -g performance")
}

/// Instance families with CPU credits, which are throttled once the credits are spent.
const BURSTABLE: &[&str] = &[
    "t2.",
    "t3.",
    "t3a.",
    "t4g.",
    "e2-micro",
    "e2-small",
    "e2-medium",
    "f1-micro",
    "g1-small",
    "Standard_B",
];

fn burstable(facts: &MachineFacts) -> DoctorFinding {
    let name = "burstable instance";
    let Some(product) = &facts.product else { return unknown(name, "no") };
    let found = BURSTABLE.iter().any(|family| product.starts_with(family));
    finding(name, level(!found, FindingLevel::Warning), product, "an instance with processors of its own")
        .hint("burstable instances are fast for minutes and slow afterwards; take another family")
}
