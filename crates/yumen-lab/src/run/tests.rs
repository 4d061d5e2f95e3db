use super::load::{LoadInput, arguments};
use super::usage::{BottleneckInput, GatewayProcesses, OfferedLoad, bottleneck};
use crate::record::{BottleneckPart, PartUsage, RoundUsage};
use crate::scenario::{CaseLoad, CaseSettings, OpenRate};

fn part(cpus: usize, busy: f64) -> PartUsage {
    PartUsage { cpus, cpu_ns: (busy * cpus as f64 * 1e9) as u64, ..PartUsage::default() }
}

const SECOND: BottleneckInput = BottleneckInput {
    elapsed_ns: 1_000_000_000,
    load: OfferedLoad::Closed,
    gateway: GatewayProcesses::Known,
    shared: false,
    others: 0.0,
};

fn check(gateway: f64, upstream: f64, generator: f64, offered: BottleneckInput, expected: BottleneckPart) {
    let usage = RoundUsage {
        gateway: part(2, gateway),
        upstream: part(1, upstream),
        generator: part(1, generator),
        stolen: 0.0,
    };
    let verdict = bottleneck(&usage, offered);
    assert_eq!(verdict.who, expected, "{}", verdict.why);
}

#[test]
fn the_busiest_part_is_the_bottleneck() {
    check(0.97, 0.5, 0.5, SECOND, BottleneckPart::Gateway);
    check(0.5, 0.97, 0.5, SECOND, BottleneckPart::Upstream);
    check(0.5, 0.5, 0.97, SECOND, BottleneckPart::Generator);
    check(0.97, 0.97, 0.97, SECOND, BottleneckPart::Gateway);
    check(0.5, 0.5, 0.5, SECOND, BottleneckPart::Latency);
}

#[test]
fn parts_on_the_same_processors_are_judged_together() {
    let shared = BottleneckInput { shared: true, ..SECOND };
    check(0.5, 0.6, 0.38, shared, BottleneckPart::Upstream);
    check(0.5, 0.38, 0.6, shared, BottleneckPart::Generator);
    check(0.97, 0.6, 0.38, shared, BottleneckPart::Gateway);
}

fn offered(answered: f64) -> BottleneckInput {
    BottleneckInput { load: OfferedLoad::Fixed { answered }, ..SECOND }
}

#[test]
fn an_offered_load_that_was_met_is_its_own_bound() {
    check(0.5, 0.5, 0.5, offered(0.999), BottleneckPart::Load);
    check(0.5, 0.5, 0.5, offered(0.7), BottleneckPart::Latency);
    check(0.95, 0.5, 0.5, offered(0.999), BottleneckPart::Gateway);
}

#[test]
fn without_its_processes_a_gateway_is_not_blamed() {
    check(
        0.0,
        0.5,
        0.5,
        BottleneckInput { gateway: GatewayProcesses::Unknown, ..SECOND },
        BottleneckPart::Unknown,
    );
    check(
        0.0,
        0.5,
        0.5,
        BottleneckInput { gateway: GatewayProcesses::Absent, ..SECOND },
        BottleneckPart::Latency,
    );
}

#[test]
fn other_programs_are_blamed_only_where_no_part_was_busy() {
    let others = BottleneckInput { others: 0.4, ..SECOND };
    check(0.5, 0.3, 0.3, others, BottleneckPart::Machine);
    check(0.95, 0.3, 0.3, others, BottleneckPart::Gateway);
}

#[test]
fn stolen_time_makes_the_machine_the_bottleneck() {
    let usage = RoundUsage { gateway: part(1, 0.97), stolen: 0.2, ..RoundUsage::default() };
    assert_eq!(bottleneck(&usage, SECOND).who, BottleneckPart::Machine);
}

fn line(settings: &CaseSettings) -> String {
    let aim = LoadInput { base: "http://127.0.0.1:1", server_name: None, seconds: 1.5, cpus: 2, pids: &[7] };
    arguments(settings, &aim).join(" ")
}

#[test]
fn settings_become_a_command_line() {
    let with = |change: fn(&mut CaseSettings)| {
        let mut settings = CaseSettings::default();
        change(&mut settings);
        line(&settings)
    };
    let close = with(|settings| settings.clients.headers = vec!["Connection: Close".to_owned()]);
    assert!(close.contains("--header Connection: Close"));
    assert!(close.ends_with("http://127.0.0.1:1/ping"));
    assert!(with(|settings| settings.clients.connections = 1).contains("--threads 1 "));
    let open = with(|settings| settings.load = CaseLoad::Open(OpenRate::PerSecond(5000.0)));
    assert!(open.contains("--rate 5000"));
    assert!(with(|settings| settings.gateway.key_consumers = 3).contains("apikey: lab-key-2"));
    let idle = with(|settings| (settings.load, settings.clients.connections) = (CaseLoad::Idle, 30_000));
    assert!(idle.contains("127.0.0.2") && idle.contains("--pid 7"));
}
