use super::*;

/// Facts of a machine without any finding.
fn good() -> MachineFacts {
    MachineFacts {
        file_max: Some(10_000_000),
        files_hard: Some(1_048_576),
        somaxconn: Some(65_535),
        syn_backlog: Some(65_535),
        port_range: Some((1024, 65_535)),
        tw_reuse: Some(2),
        conntrack: None,
        cpus: 8,
        cpu_quota: None,
        hyper_threads: Some(false),
        stolen: Some(0.0),
        busy: Some(0.02),
        governor: Some("performance".to_owned()),
        product: Some("m7i.metal".to_owned()),
    }
}

const NEEDS: MachineNeeds = MachineNeeds { connections: 1_000, short_connections: true };

/// Findings other than `Ok`, with their levels.
fn bad(facts: &MachineFacts) -> Vec<(String, FindingLevel)> {
    let findings = examine(facts, NEEDS).into_iter().filter(|finding| finding.level != FindingLevel::Ok);
    findings
        .inspect(|finding| {
            assert!(finding.level == FindingLevel::Unknown || finding.hint.is_some(), "{}", finding.name)
        })
        .map(|finding| (finding.name, finding.level))
        .collect()
}

fn check(change: impl Fn(&mut MachineFacts), name: &str, level: FindingLevel) {
    let mut facts = good();
    change(&mut facts);
    assert_eq!(bad(&facts), [(name.to_owned(), level)]);
}

#[test]
fn a_good_machine_has_no_findings() {
    assert_eq!(bad(&good()), []);
}

#[test]
fn each_fact_is_judged_alone() {
    check(|facts| facts.file_max = Some(9_000), "fs.file-max", FindingLevel::Problem);
    check(|facts| facts.files_hard = Some(1_024), "open files of a process", FindingLevel::Problem);
    check(|facts| facts.somaxconn = Some(128), "net.core.somaxconn", FindingLevel::Warning);
    check(|facts| facts.syn_backlog = Some(128), "net.ipv4.tcp_max_syn_backlog", FindingLevel::Warning);
    check(
        |facts| facts.port_range = Some((32_768, 60_999)),
        "net.ipv4.ip_local_port_range",
        FindingLevel::Warning,
    );
    check(|facts| facts.tw_reuse = Some(0), "net.ipv4.tcp_tw_reuse", FindingLevel::Warning);
    check(|facts| facts.conntrack = Some((60_000, 65_536)), "connection tracking", FindingLevel::Warning);
    check(|facts| facts.cpus = 2, "processors", FindingLevel::Warning);
    check(|facts| facts.cpu_quota = Some(1.5), "processor quota", FindingLevel::Problem);
    check(|facts| facts.hyper_threads = Some(true), "hyper-threads", FindingLevel::Warning);
    check(|facts| facts.stolen = Some(0.05), "stolen processor time", FindingLevel::Warning);
    check(|facts| facts.busy = Some(0.6), "other programs", FindingLevel::Warning);
    check(|facts| facts.governor = Some("powersave".to_owned()), "frequency governor", FindingLevel::Warning);
    check(|facts| facts.product = Some("t3.large".to_owned()), "burstable instance", FindingLevel::Warning);
}

#[test]
fn missing_facts_are_unknown_not_problems() {
    check(|facts| facts.governor = None, "frequency governor", FindingLevel::Unknown);
    check(|facts| facts.stolen = None, "stolen processor time", FindingLevel::Unknown);
}

#[test]
fn more_connections_ask_for_more() {
    let million = MachineNeeds { connections: 1_000_000, short_connections: false };
    let findings = examine(&good(), million);
    let files = findings.iter().find(|finding| finding.name == "open files of a process").unwrap();
    assert_eq!(files.level, FindingLevel::Problem);
    assert!(files.wanted.starts_with("2002048"));
}

#[test]
fn kept_connections_need_few_ports() {
    let mut facts = good();
    facts.port_range = Some((32_768, 60_999));
    let keepalive = MachineNeeds { connections: 100, short_connections: false };
    assert!(examine(&facts, keepalive).iter().all(|finding| finding.level == FindingLevel::Ok));
}

#[test]
fn processor_times_are_read_from_the_first_line() {
    let times = facts::CpuTimes::read("cpu  10 0 20 60 5 1 2 2 0 0\ncpu0 1 2 3\n").unwrap();
    let later = facts::CpuTimes::read("cpu  20 0 40 120 10 2 4 4 0 0\n").unwrap();
    assert_eq!(later.stolen_since(times), 0.02);
    assert_eq!(facts::CpuTimes::read("intr 5"), None);
}
