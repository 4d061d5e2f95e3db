//! Helpers for the tests of this crate: requests, a worker without effects, a seeded generator.

use std::cell::Cell;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use yumen_http::{HeadLimits, RequestHead, parse};
use yumen_plugin::PluginHost;
use yumen_plugin::kind::NodeFacts;
use yumen_plugin::plugin::LocalFuture;
use yumen_plugin::{Carry, ClientInfo, ConsumerIndex, Exchange, Now, PluginRegistry};

use crate::{Compiler, CompilerEnv, Route, RouteMatching, RouteTarget, UpstreamDefaults};

/// A small generator (xorshift64*), reproducible by its seed.
pub(crate) struct SeededRandom(Cell<u64>);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> SeededRandom {
        SeededRandom(Cell::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1))
    }

    pub(crate) fn next(&self) -> u64 {
        let mut x = self.0.get();
        x ^= x >> 12;
        x ^= x << 25;
        x ^= x >> 27;
        self.0.set(x);
        x.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    pub(crate) fn below(&self, bound: usize) -> usize {
        (self.next() >> 33) as usize % bound
    }

    pub(crate) fn one<T: Copy>(&self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// A worker for tests, with a number and random numbers; it cannot wait.
pub(crate) struct TestWorker {
    pub(crate) worker: usize,
    pub(crate) random: SeededRandom,
    pub(crate) client: ClientInfo,
    pub(crate) consumers: ConsumerIndex,
}

impl Default for TestWorker {
    fn default() -> Self {
        let address: SocketAddr = "10.0.0.1:5000".parse().unwrap();
        TestWorker {
            worker: 0,
            random: SeededRandom::new(7),
            client: ClientInfo {
                peer: address,
                local: address,
                tls: None,
                connection_id: 1,
                listener: yumen_plugin::ListenerNumber::STATIC,
                mapped_port: 0,
            },
            consumers: ConsumerIndex::default(),
        }
    }
}

impl PluginHost for TestWorker {
    fn sleep(&self, _delay: Duration) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn random(&self) -> u64 {
        self.random.next()
    }

    fn fill_random(&self, out: &mut [u8]) {
        out.fill(4);
    }

    fn worker(&self) -> usize {
        self.worker
    }

    fn clock(&self) -> Now {
        Now::default()
    }
}

impl TestWorker {
    /// The exchange of a request given as its lines, the version left out of the first.
    pub(crate) fn exchange(&self, lines: &str) -> Exchange<'_> {
        let mut lines = lines.lines();
        let mut text = format!("{} HTTP/1.1\r\n", lines.next().unwrap());
        for line in lines {
            text.push_str(line);
            text.push_str("\r\n");
        }
        if !text.contains("Host:") {
            text.push_str("Host: \r\n");
        }
        text.push_str("\r\n");
        let mut head = RequestHead::default();
        parse::request(text.as_bytes(), 0, &HeadLimits::default(), &mut head).expect(&text);
        Exchange::new(head, &self.client, Now::default(), self, &self.consumers)
    }
}

/// A route with an id and conditions, without a target.
pub(crate) fn route(id: &str, matching: RouteMatching) -> Arc<Route> {
    let info = yumen_plugin::RouteInfo { id: id.into(), ..Default::default() };
    Arc::new(Route {
        info,
        matching,
        target: RouteTarget::None,
        forwarding: None,
        chain: Arc::default(),
        enable_websocket: false,
        skips_global_rules: false,
        timeouts: None,
        on_change: None,
        life: Arc::default(),
        scopes: None,
    })
}

/// A compiler with the built-in plugins; any text that does not start with `bad` is a certificate.
pub(crate) fn compiler() -> Compiler {
    let env = CompilerEnv {
        sinks: None,
        node: NodeFacts::default(),
        defaults: UpstreamDefaults::default(),
        path_parameters: true,
        workers: 1,
        closes_broken: false,
        missing: Default::default(),
        fetched: Arc::default(),
        variables: Arc::new(|_| None),
        load_certificate: Arc::new(
            |cert: &str, _: &str| -> Result<crate::compile::Loaded, crate::compile::KeyPairError> {
                match cert.starts_with("bad") {
                    true => Err(crate::compile::KeyPairError::Certificate("not a certificate".into())),
                    false => Ok(Arc::new(cert.to_owned())),
                }
            },
        ),
    };
    Compiler::new(Arc::new(PluginRegistry::new(yumen_plugins::BUILTIN)), Arc::new(Carry::default()), env)
}
