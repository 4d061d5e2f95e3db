//! Sample requests to the gateway of `yumen demo`: few, to the loopback interface, until the process ends.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http1::SendRequest;
use hyper::header::HOST;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Connections that send requests.
const LANES: u32 = 4;
/// Period of the rate, which rises and falls by half.
const WAVE_S: f32 = 60.0;
/// Pause after a failure, such as a gateway that hands over.
const AFTER_FAILURE: Duration = Duration::from_millis(500);

/// A sample request.
#[derive(Debug)]
pub(super) struct SampleRequest {
    pub(super) method: &'static str,
    pub(super) target: &'static str,
    /// Value of the field `apikey`, if any.
    pub(super) key: Option<&'static str>,
    pub(super) body: &'static str,
}

const fn get(target: &'static str) -> SampleRequest {
    SampleRequest { method: "GET", target, key: None, body: "" }
}

const fn with_key(method: &'static str, key: &'static str, body: &'static str) -> SampleRequest {
    SampleRequest { method, target: "/orders/7", key: Some(key), body }
}

/// The requests, in turn. Bob asks more often than the limit of his orders allows.
pub(super) const SAMPLES: &[SampleRequest] = &[
    get("/shop/items?page=1"),
    with_key("GET", "alice-key", ""),
    get("/shop/items/42"),
    with_key("GET", "bob-key", ""),
    get("/payments/2026?currency=EUR"),
    get("/shop/items/7"),
    with_key("POST", "alice-key", "{\"item\": 42, \"count\": 1}"),
    with_key("GET", "bob-key", ""),
    get("/reports/monthly?delay_ms=120"),
    get("/shop/search?q=lamp"),
    with_key("GET", "bob-key", ""),
    get("/orders/7"),
    get("/catalog/items/42"),
    get("/shop/items?page=2"),
    with_key("GET", "bob-key", ""),
    get("/payments/2026?status=502"),
    get("/shop/items/13?status=404"),
    with_key("GET", "mallory-key", ""),
    get("/nowhere"),
    get("/internal/metrics"),
    get("/hello"),
];

/// Sends requests from a thread of its own, `rate` per second on average.
pub(super) fn start(address: SocketAddr, rate: u32) {
    let send = move || {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        runtime.block_on(async {
            for number in 0..LANES {
                tokio::spawn(TrafficLane { address, number, rate }.run());
            }
            std::future::pending::<()>().await;
        });
    };
    // Without the thread, the demonstration has no traffic and is otherwise complete.
    if let Err(error) = thread::Builder::new().name("yumen-traffic".into()).spawn(send) {
        tracing::warn!(%error, "sample traffic unavailable");
    }
}

/// One connection and its share of the requests.
struct TrafficLane {
    address: SocketAddr,
    number: u32,
    rate: u32,
}

impl TrafficLane {
    async fn run(self) -> Infallible {
        let began = Instant::now();
        let mut connection: Option<SendRequest<Full<Bytes>>> = None;
        let mut turn = self.number as usize;
        loop {
            let sample = &SAMPLES[turn % SAMPLES.len()];
            turn += LANES as usize;
            if connection.as_ref().is_none_or(SendRequest::is_closed) {
                connection = self.connect().await;
            }
            let is_answered = match &mut connection {
                Some(connection) => self.send(connection, sample).await.is_ok(),
                None => false,
            };
            if !is_answered {
                connection = None;
                tokio::time::sleep(AFTER_FAILURE).await;
            }
            tokio::time::sleep(self.pause(began.elapsed())).await;
        }
    }

    /// Time to the next request; the whole rate follows a wave.
    fn pause(&self, elapsed: Duration) -> Duration {
        let wave = (elapsed.as_secs_f32() / WAVE_S * std::f32::consts::TAU).sin();
        let rate = self.rate as f32 / LANES as f32 * (1.0 + wave / 2.0);
        Duration::from_secs_f32(1.0 / rate.max(0.01))
    }

    async fn connect(&self) -> Option<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(self.address).await.ok()?;
        let (connection, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        tokio::spawn(driver);
        Some(connection)
    }

    async fn send(
        &self,
        connection: &mut SendRequest<Full<Bytes>>,
        sample: &SampleRequest,
    ) -> anyhow::Result<()> {
        let mut request = Request::builder()
            .method(sample.method)
            .uri(sample.target)
            .header(HOST, self.address.to_string())
            .header("user-agent", "yumen-demo");
        if let Some(key) = sample.key {
            request = request.header("apikey", key);
        }
        let response = connection.send_request(request.body(Full::new(sample.body.into()))?).await?;
        response.into_body().collect().await?;
        // The sender is ready again once the response has been read.
        connection.ready().await?;
        Ok(())
    }
}
