use super::load::{Aim, arguments};
use super::usage::{Offered, bottleneck};
use crate::record::{Part, Usage, Who};
use crate::scenario::{Load, Settings};

fn part(cpus: usize, busy: f64) -> Part {
    Part { cpus, cpu_ns: (busy * cpus as f64 * 1e9) as u64, ..Part::default() }
}

const SECOND: Offered = Offered {
    elapsed_ns: 1_000_000_000,
    answered: None,
    shared: false,
    gateway_known: true,
    gateway: true,
    held: false,
    others: 0.0,
};

fn check(gateway: f64, upstream: f64, generator: f64, offered: Offered, expected: Who) {
    let usage = Usage {
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
    check(0.97, 0.5, 0.5, SECOND, Who::Gateway);
    check(0.5, 0.97, 0.5, SECOND, Who::Upstream);
    check(0.5, 0.5, 0.97, SECOND, Who::Generator);
    check(0.97, 0.97, 0.97, SECOND, Who::Gateway);
    check(0.5, 0.5, 0.5, SECOND, Who::Latency);
}

#[test]
fn parts_on_the_same_processors_are_judged_together() {
    let shared = Offered { shared: true, ..SECOND };
    check(0.5, 0.6, 0.38, shared, Who::Upstream);
    check(0.5, 0.38, 0.6, shared, Who::Generator);
    check(0.97, 0.6, 0.38, shared, Who::Gateway);
}

#[test]
fn an_offered_load_that_was_met_is_its_own_bound() {
    check(0.5, 0.5, 0.5, Offered { answered: Some(0.999), ..SECOND }, Who::Load);
    check(0.5, 0.5, 0.5, Offered { answered: Some(0.7), ..SECOND }, Who::Latency);
    check(0.95, 0.5, 0.5, Offered { answered: Some(0.999), ..SECOND }, Who::Gateway);
}

#[test]
fn without_its_processes_a_gateway_is_not_blamed() {
    check(0.0, 0.5, 0.5, Offered { gateway_known: false, ..SECOND }, Who::Unknown);
    check(0.0, 0.5, 0.5, Offered { gateway: false, ..SECOND }, Who::Latency);
}

#[test]
fn other_programs_are_blamed_only_where_no_part_was_busy() {
    let others = Offered { others: 0.4, ..SECOND };
    check(0.5, 0.3, 0.3, others, Who::Machine);
    check(0.95, 0.3, 0.3, others, Who::Gateway);
}

#[test]
fn stolen_time_makes_the_machine_the_bottleneck() {
    let usage = Usage { gateway: part(1, 0.97), stolen: 0.2, ..Usage::default() };
    assert_eq!(bottleneck(&usage, SECOND).who, Who::Machine);
}

fn line(settings: &Settings) -> String {
    let aim = Aim { base: "http://127.0.0.1:1", server_name: None, seconds: 1.5, cpus: 2, pids: &[7] };
    arguments(settings, &aim).join(" ")
}

#[test]
fn settings_become_a_command_line() {
    let close = Settings { headers: vec!["Connection: Close".to_owned()], ..Settings::default() };
    assert!(line(&close).contains("--header Connection: Close"));
    assert!(line(&close).ends_with("http://127.0.0.1:1/ping"));
    let one = Settings { connections: 1, ..Settings::default() };
    assert!(line(&one).contains("--threads 1 "));
    let open = Settings { load: Load::Open, rate: Some(5000.0), ..Settings::default() };
    assert!(line(&open).contains("--rate 5000"));
    let keyed = Settings { key_auth: true, consumers: 3, ..Settings::default() };
    assert!(line(&keyed).contains("apikey: lab-key-2"));
    let idle = Settings { load: Load::Idle, connections: 30_000, ..Settings::default() };
    assert!(line(&idle).contains("127.0.0.2") && line(&idle).contains("--pid 7"));
}
