//! One seed: its snapshot, its weather, its clients, and the loop that lets things happen.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tokio::sync::watch;
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::{Carry, ClientInfo, PluginRegistry};
use yumen_snapshot::protection::EndpointCounts;
use yumen_snapshot::upstream::{AttemptTimeouts, KeepaliveLimits};
use yumen_snapshot::{Compiler, CompilerEnv, Publisher, Snapshot, Upstream, UpstreamDefaults};

use super::client::{self, Habits};
use super::endpoint::{Endpoint, Manners};
use super::ledger::Ledger;
use super::net::{End, Net, Weather};
use super::scheduler::{Random, Scheduler};
use super::{http2, http2_endpoint};
use crate::downstream;
use crate::observe::counters::WorkerCounters;
use crate::runtime::clock;
use crate::runtime::minimum_rate::MinimumRate;
use crate::runtime::worker_duty::WorkerDuty;
use crate::settings::{DownstreamTimeouts, WorkerLimits, WorkerSettings};
use crate::transport::tcp::TcpConnection;
use crate::worker::{Worker, WorkerParts};

/// A world that has not ended after so many steps never will.
const STEPS_MAX: usize = 400_000;

/// Which sides speak HTTP/2.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Http2 {
    pub(crate) clients: bool,
    pub(crate) endpoints: bool,
}

/// A seed's world.
pub(crate) struct World {
    scheduler: Rc<Scheduler>,
    net: Rc<Net>,
    ledger: Rc<Ledger>,
    worker: Rc<Worker>,
    snapshot: Arc<Snapshot>,
    /// Chance in 100 000 steps that time jumps.
    jumps: usize,
    /// Step at which the worker begins to drain.
    drains_at: Option<usize>,
    http2: Http2,
    _duty: watch::Sender<WorkerDuty>,
}

impl World {
    pub(crate) fn new(seed: u64, http2: Http2, keep_events: bool) -> World {
        let scheduler = Scheduler::new(seed, keep_events);
        clock::simulate(scheduler.now_us.get());
        let random = &scheduler.random;
        let calm = random.percent(25);
        let net = Net::new(scheduler.clone(), weather(random, calm));
        let ledger = Ledger::new(scheduler.clone());
        let snapshot = snapshot(random, calm, http2, &ledger);
        let publisher = Arc::new(Publisher::default());
        publisher.publish(snapshot.clone());
        let (duty, duty_rx) = watch::channel(WorkerDuty::Serve);
        let worker = Worker::new(WorkerParts {
            id: 0,
            settings: Arc::new(settings(random, calm)),
            publisher,
            counters: Arc::new(WorkerCounters::default()),
            applied: Arc::default(),
            log: None,
            otlp_log: None,
            duty: duty_rx,
            seed: random.next(),
        });
        let jumps = if calm { 0 } else { random.one(&[0, 0, 5, 50]) };
        let drains_at = (!calm && random.percent(15)).then(|| random.size(20_000));
        let world = World { scheduler, net, ledger, worker, snapshot, jumps, drains_at, http2, _duty: duty };
        world.scheduler.note(|| format!("calm: {calm}, {http2:?}, {:?}", world.net.weather));
        world.populate(calm);
        world
    }

    /// Sets up endpoints and clients.
    fn populate(&self, calm: bool) {
        let manners = manners(&self.scheduler.random, calm);
        let mut habits = habits(&self.scheduler.random, calm);
        if self.http2.clients {
            habits.slow_reads = self.scheduler.random.one(&[0, 5, 50]);
        }
        self.scheduler.note(|| format!("{manners:?} {habits:?}"));
        let (net, ledger) = (Rc::downgrade(&self.net), self.ledger.clone());
        let (links, http2) = (Cell::new(0), self.http2);
        self.net.on_connect(move |address| {
            let net = net.upgrade().expect("the world lives while its tasks run");
            links.set(links.get() + 1);
            let name = format!("endpoint{}-{}", address.port(), links.get());
            Box::pin(dial(net, ledger.clone(), manners, http2, name))
        });
        for number in 1..=1 + self.scheduler.random.below(8) {
            let visitor = Visitor {
                net: self.net.clone(),
                ledger: self.ledger.clone(),
                worker: self.worker.clone(),
                habits,
                http2,
                number,
            };
            self.scheduler.spawn(format!("client{number}"), visitor.run());
        }
    }

    /// Lets things happen until nothing is left to happen; says which promises were broken.
    pub(crate) fn run(&self) -> Vec<String> {
        for count in 0..STEPS_MAX {
            if self.drains_at == Some(count) {
                self.scheduler.note(|| "the worker drains".into());
                self.worker.admission.start_drain(WorkerDuty::End { within_ms: 0 });
                self.worker.timers.wake_all();
            }
            if !self.ledger.all_broken().is_empty() {
                return self.end();
            }
            if !self.step() {
                self.check_end();
                return self.end();
            }
        }
        self.ledger.broken(format!("no end after {STEPS_MAX} steps: {:?}", self.scheduler.unfinished()));
        self.end()
    }

    fn end(&self) -> Vec<String> {
        self.net.close();
        self.scheduler.clear();
        self.ledger.all_broken()
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.scheduler.events()
    }

    /// Complete answers passed on, answers of the gateway, broken ones; requests that waited for room, and
    /// endpoints that were left out.
    pub(crate) fn tally(&self) -> [u64; 5] {
        let [passed, local, torn] =
            [&self.ledger.passed, &self.ledger.local, &self.ledger.torn].map(Cell::get);
        let protected = || self.snapshot.upstreams().filter_map(|(_, upstream)| upstream.protection.as_ref());
        let queued = protected().map(|all| all.gate.queued.load(Relaxed)).sum();
        let tallies = protected().flat_map(|all| &all.endpoints);
        let ejections = tallies.map(|tally| tally.ejection.total()).sum();
        [passed, local, torn, queued, ejections]
    }

    fn step(&self) -> bool {
        let random = &self.scheduler.random;
        self.advance_to(self.scheduler.now_us.get() + 1 + random.below(20) as u64);
        if self.jumps > 0 && random.below(100_000) < self.jumps {
            let jump_us = random.size(8_000_000) as u64;
            self.scheduler.note(|| format!("time jumps by {jump_us} us"));
            self.advance_to(self.scheduler.now_us.get() + jump_us);
        }
        if random.below(2000) == 0 {
            self.worker.upstream.pool.borrow_mut().sweep(clock::now().mono_ms());
        }
        let ready = self.scheduler.ready_count();
        let deliverable = self.net.deliverable_count();
        if ready + deliverable == 0 {
            return self.wait();
        }
        if random.below(ready + deliverable) < ready {
            self.scheduler.poll_one();
            self.check_pool();
        } else {
            self.net.deliver_one();
        }
        true
    }

    /// Goes on to when something happens by itself; says whether anything will.
    fn wait(&self) -> bool {
        let timer_us = self.worker.timers.next_ms().map(|ms| ms * 1000);
        let next = [timer_us, self.scheduler.next_sleep_us(), self.net.next_us()];
        let Some(next_us) = next.into_iter().flatten().min() else { return false };
        self.advance_to(next_us.max(self.scheduler.now_us.get()));
        true
    }

    fn advance_to(&self, now_us: u64) {
        self.scheduler.now_us.set(now_us);
        clock::simulate(now_us);
        self.scheduler.wake_sleepers();
        self.worker.timers.fire(now_us / 1000);
    }

    /// What holds whatever happened before.
    fn check_pool(&self) {
        let pooled = self.worker.upstream.pool.borrow().len();
        let most: usize = self
            .snapshot
            .upstreams()
            .map(|(_, upstream)| upstream.keepalive.size as usize * upstream.endpoints.len())
            .sum();
        if pooled > most {
            self.ledger.broken(format!("{pooled} connections kept, {most} allowed"));
        }
        for (_, upstream) in self.snapshot.upstreams() {
            self.check_bounds(upstream);
        }
    }

    fn check_bounds(&self, upstream: &Upstream) {
        let Some(protection) = &upstream.protection else { return };
        let Some(limits) = protection.limits else { return };
        let gate = &protection.gate;
        let all = [(&gate.requests, limits.all.requests), (&gate.connections, limits.all.connections)];
        let each = protection.endpoints.iter().flat_map(|tally| {
            [(&tally.requests, limits.each.requests), (&tally.connections, limits.each.connections)]
        });
        for (count, most) in all.into_iter().chain(each) {
            let count = count.load(Relaxed);
            if count > most {
                self.ledger.broken(format!("{count} at a time, {most} allowed"));
            }
        }
    }

    /// Nothing is counted that is over, but for connections that are kept.
    fn check_counts(&self, upstream: &Upstream, pooled: usize) {
        let Some(protection) = &upstream.protection else { return };
        let gate = &protection.gate;
        let sum = |read: fn(&EndpointCounts) -> &AtomicU32| -> u32 {
            protection.endpoints.iter().map(|tally| read(tally).load(Relaxed)).sum()
        };
        let left = [
            gate.requests.load(Relaxed),
            gate.retries.load(Relaxed),
            gate.waiting() as u32,
            sum(|tally| &tally.requests),
            gate.connections.load(Relaxed).abs_diff(sum(|tally| &tally.connections)),
        ];
        if left != [0; 5] || gate.connections.load(Relaxed) as usize > pooled {
            self.ledger.broken(format!("still counted: {left:?}, {gate:?}"));
        }
    }

    fn check_end(&self) {
        self.ledger.check_end();
        let unfinished = self.scheduler.unfinished();
        // Endpoints may wait on connections that the gateway keeps for later.
        let stuck: Vec<_> = unfinished.iter().filter(|name| !name.starts_with("endpoint")).collect();
        if !stuck.is_empty() {
            self.ledger.broken(format!("waits for ever: {stuck:?}"));
        }
        let pooled = self.worker.upstream.pool.borrow().len();
        if unfinished.len() - stuck.len() > pooled {
            self.ledger.broken(format!("{pooled} connections kept, but open: {unfinished:?}"));
        }
        let open = self.worker.counters.connections.open.get();
        if open != 0 {
            self.ledger.broken(format!("{open} connections are counted as open"));
        }
        for (_, upstream) in self.snapshot.upstreams() {
            self.check_counts(upstream, pooled);
            for endpoint in &upstream.endpoints {
                let active = endpoint.state.active.load(Relaxed);
                if active != 0 {
                    self.ledger.broken(format!("{active} exchanges counted at {}", endpoint.addr));
                }
            }
        }
    }
}

/// Opens connections one after another.
struct Visitor {
    net: Rc<Net>,
    ledger: Rc<Ledger>,
    worker: Rc<Worker>,
    habits: Habits,
    http2: Http2,
    number: usize,
}

impl Visitor {
    async fn run(self) {
        let random = &self.net.scheduler.random;
        for visit in 1..=1 + random.below(3) {
            self.net.scheduler.sleep_us(random.size(2_000_000) as u64).await;
            let name = format!("client{}-{visit}", self.number);
            let (near, far) = self.net.pair(&name, "gateway");
            self.accept(far, &name);
            match self.http2.clients {
                true => http2::run(self.ledger.clone(), near, self.habits, name).await,
                false => client::run(self.ledger.clone(), near, self.habits, name).await,
            }
        }
    }

    /// What the listener does.
    fn accept(&self, end: End, name: &str) {
        let Some(admitted) = self.worker.admit() else { return };
        let peer = SocketAddr::from(([10, 0, 0, self.number as u8], 5000));
        let local = SocketAddr::from(([10, 0, 1, 1], 80));
        let client = ClientInfo {
            peer,
            local,
            tls: None,
            connection_id: self.worker.counters.connections.accepted.get(),
            listener: yumen_plugin::ListenerNumber::STATIC,
            mapped_port: 0,
        };
        let worker = self.worker.clone();
        let run = downstream::run(worker, TcpConnection::memory(end), client, None, admitted);
        self.net.scheduler.spawn(format!("gateway for {name}"), run);
    }
}

async fn dial(
    net: Rc<Net>,
    ledger: Rc<Ledger>,
    manners: Manners,
    http2: Http2,
    name: String,
) -> std::io::Result<End> {
    let scheduler = net.scheduler.clone();
    if scheduler.random.percent(50) {
        scheduler.sleep_us(scheduler.random.size(50_000) as u64).await;
    }
    if scheduler.random.percent(manners.never_accepts) {
        scheduler.note(|| format!("{name} never accepts"));
        return std::future::pending().await;
    }
    if scheduler.random.percent(manners.refuses) {
        scheduler.note(|| format!("{name} refuses"));
        return Err(ErrorKind::ConnectionRefused.into());
    }
    let (near, far) = net.pair("gateway", &name);
    match http2.endpoints {
        true => {
            scheduler.spawn(name.clone(), http2_endpoint::serve(far, ledger, manners, http2.clients, name))
        }
        false => scheduler.spawn(name, Endpoint::new(far, ledger, manners).run()),
    }
    Ok(near)
}

fn weather(random: &Random, calm: bool) -> Weather {
    Weather {
        crumbs: random.one(&[0, 0, 20, 90]),
        again: random.one(&[0, 0, 10, 30]),
        resets: if calm { 0 } else { random.one(&[0, 0, 10, 100]) },
        stalls: if calm { 0 } else { random.one(&[0, 0, 1, 10]) },
        room_max: random.one(&[2_000, 50_000, 300_000]),
    }
}

fn manners(random: &Random, calm: bool) -> Manners {
    if calm {
        return Manners::default();
    }
    let few = || random.one(&[0, 0, 3, 10, 30]);
    Manners {
        refuses: few(),
        never_accepts: few() / 3,
        ends_early: few(),
        stalls: few() / 3,
        answers_early: few(),
        breaks_answer: few(),
        closes_idle: few(),
        leaves_more: few(),
    }
}

fn habits(random: &Random, calm: bool) -> Habits {
    let some = || random.one(&[0, 5, 20, 50]);
    let bad = |chance: usize| if calm { 0 } else { chance };
    Habits {
        pipelines: some(),
        sends_close: some() / 2,
        speaks_http10: some() / 2,
        expects: some(),
        vanishes: bad(some() / 2),
        dawdles: bad(some() / 2),
        half_closes: some() / 2,
        slow_reads: 0,
        calm,
    }
}

fn settings(random: &Random, calm: bool) -> WorkerSettings {
    if calm {
        return WorkerSettings::default();
    }
    let timeout = || random.one(&[500, 3_000, 60_000]);
    WorkerSettings {
        timeouts: DownstreamTimeouts {
            head_ms: timeout(),
            body_ms: timeout(),
            idle_ms: timeout(),
            send_ms: timeout(),
            ..DownstreamTimeouts::default()
        },
        limits: WorkerLimits {
            body_bytes_max: random.one(&[0, 0, 100_000]),
            body_rate: MinimumRate { bytes_per_s: random.one(&[0, 0, 1000]), window_ms: 1000 },
            response_rate: MinimumRate { bytes_per_s: random.one(&[0, 0, 1000]), window_ms: 1000 },
            ..WorkerLimits::default()
        },
        ..WorkerSettings::default()
    }
}

/// Bounds of the upstream. In calm worlds there is room for all to wait, and so nobody is refused.
fn protection(random: &Random, calm: bool, http2: Http2) -> String {
    if random.percent(40) {
        return String::new();
    }
    let bound = || 1 + random.below(3);
    // Connections are not bounded where each carries many requests.
    let kinds = if http2.endpoints { 1 } else { 4 };
    let limits = match random.below(kinds) {
        0 => format!("max_requests: {}", bound()),
        1 => format!("max_connections: {}", bound()),
        2 => format!("per_endpoint: {{max_requests: {}, max_connections: {}}}", bound(), bound()),
        _ => format!("max_requests: {}, max_connections: {}", bound(), bound()),
    };
    let waits = match calm {
        true => "max_pending: 100, pending_timeout: 1000".to_owned(),
        false => format!("max_pending: {}, pending_timeout: {}", random.below(4), random.one(&[1, 5])),
    };
    let outliers = random.one(&[
        "",
        "outlier_detection: {consecutive_5xx: 2, base_ejection_time: 0.5, interval: 1}, ",
        "outlier_detection: {consecutive_gateway_failures: 1, max_ejected_percent: 100}, ",
    ]);
    let budget = random.one(&["", "retry_budget: {percent: 10, min_concurrency: 1}, "]);
    format!("limits: {{{limits}, {waits}}}, {outliers}{budget}")
}

/// Retries of the route by status.
fn retries_by_status(random: &Random, ledger: &Ledger) -> &'static str {
    let retry = random.one(&[
        "",
        "",
        "retry: {statuses: [500], attempts: 2}, ",
        "retry: {statuses: [500], attempts: 3, backoff_ms: 50}, ",
    ]);
    ledger.retries_500.set(!retry.is_empty());
    retry
}

fn snapshot(random: &Random, calm: bool, http2: Http2, ledger: &Ledger) -> Arc<Snapshot> {
    let timeout = || if calm { 60_000 } else { random.one(&[200, 2_000, 60_000]) };
    let timeouts = AttemptTimeouts {
        connect_ms: timeout(),
        send_ms: timeout(),
        read_ms: timeout(),
        total_ms: 0,
        attempt_ms: 0,
    };
    let keepalive = KeepaliveLimits {
        size: random.below(5) as u32,
        idle_timeout_ms: random.one(&[300, 60_000]),
        requests: random.one(&[2, 1000]),
    };
    let nodes: Vec<_> = (1..=1 + random.below(4)).map(|port| format!("\"10.1.0.1:{port}\": 1")).collect();
    let balancer = random.one(&["roundrobin", "least_conn", "ewma"]);
    let retries = random.below(4);
    let late = random.one(&[0, 0, 1]);
    // A route that looks into bodies makes the gateway read them whole first.
    let reads_bodies = random.percent(20);
    let picky = "- {id: 2, uri: /*, priority: 1, vars: [[post_arg_none, \"==\", x]], upstream: {nodes: {\"10.1.0.9:9\": 1}}}\n";
    let picky = if reads_bodies { picky } else { "" };
    let protection = protection(random, calm, http2);
    // A route's own bounds of an attempt hide those of the weather, so most have none.
    let total = if calm {
        ""
    } else {
        random.one(&[
            "",
            "",
            "",
            "timeout: {connect: 2, send: 2, read: 2, total: 3}, ",
            "timeout: {connect: 2, send: 2, read: 2, attempt: 1}, ",
        ])
    };
    let retry = retries_by_status(random, ledger);
    let version = if http2.endpoints { "http_version: '2', " } else { "" };
    let document = format!(
        "routes:\n- {{id: 1, uri: /*, {total}{retry}upstream: {{{version}type: {balancer}, retries: {retries}, {protection}\
         retry_timeout: {late}, nodes: {{{}}}}}}}\n{picky}",
        nodes.join(", ")
    );
    let (resources, problems) = yumen_config::document::parse(&document, &|_| None);
    assert!(problems.is_empty(), "{document}\n{problems:?}");
    let env = CompilerEnv {
        sinks: None,
        node: NodeFacts { workers: 1, ..NodeFacts::default() },
        defaults: UpstreamDefaults { timeouts, keepalive },
        path_parameters: false,
        workers: 1,
        closes_broken: false,
        missing: Default::default(),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(
            |_: &str,
             _: &str|
             -> Result<yumen_snapshot::compile::Loaded, yumen_snapshot::compile::KeyPairError> {
                Err(yumen_snapshot::compile::KeyPairError::Certificate("there is no TLS here".into()))
            },
        ),
    };
    let registry = Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN));
    let compiled = Compiler::new(registry, Arc::new(Carry::default()), env).replace_all(resources, 1);
    assert!(compiled.problems.is_empty(), "{document}\n{:?}", compiled.problems);
    compiled.snapshot
}
