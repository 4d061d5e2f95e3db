//! HTTP/3 clients that migrate to another address, and clients that forge one.

use std::net::SocketAddr;
use std::time::Duration;

use h3::error::StreamError;
use serde_json::{Value, json};
use tokio::net::UdpSocket;

use crate::harness::http2;
use crate::harness::http3::{Forger, Http3Client, exchange, request};
use crate::harness::upstream::{Gate, Upstream, respond};
use crate::harness::{eventually_async, noise};
use crate::http3::World;

#[test]
fn a_connection_goes_on_when_the_port_of_its_client_changes() {
    let upstream = Upstream::start(|request, stream| {
        let real_ip = request.field("x-real-ip").unwrap_or("").to_owned();
        respond(stream, 200, "", &[real_ip.as_bytes(), b" ", &request.body].concat())
    });
    let mocking = json!({ "mocking": { "response_example": "$remote_port" } });
    let routes = json!([
        { "id": "1", "uri": "/port", "plugins": mocking },
        { "id": "2", "uri": "/*", "upstream": upstream.alone() },
    ]);
    // More workers than processors: most migrations reach the socket of another worker.
    let world = World::start(routes, 4, "");
    http2::run(async {
        let client = world.client().await;
        let body = noise(100_000);
        for _ in 0..8 {
            let now: SocketAddr = client.move_away();
            let answer = client.ask(request("POST", "/"), &body).await;
            assert!(answer.status == 200 && answer.body[10..] == body, "{:?}", &answer.body[..10]);
            assert_eq!(client.get("/port").await.text(), now.port().to_string());
        }
    });
    world.gateway.assert_metric("yumen_http3_connections_total", 1.0);
}

/// Longer than the validation of a new path, and than the closing period.
const LATER: Duration = Duration::from_millis(5000);

/// Responds with the client address from `X-Real-IP`.
fn address_echo() -> Upstream {
    Upstream::start(|request, stream| {
        let real_ip = request.field("x-real-ip").unwrap_or("").to_owned();
        respond(stream, 200, "", real_ip.as_bytes())
    })
}

/// The status of a request from a forged address: the client does not receive the replies.
async fn forged(client: &Http3Client, forger: &Forger, address: &str, path: &str) -> (u16, String) {
    let decoy = UdpSocket::bind(address).await.unwrap();
    decoy.writable().await.unwrap();
    forger.pretend(Some(decoy));
    let exchange_running = exchange(client.begin(request("GET", path)).await, b"", None);
    let losing = async {
        let lost = forger.lost().await;
        assert!(lost > 0, "the gateway answers where it believes the client to be");
        forger.pretend(None);
    };
    let (answer, ()) = tokio::join!(exchange_running, losing);
    let answer = answer.expect("an answer");
    (answer.status, answer.text())
}

#[test]
fn an_address_that_never_answers_is_not_the_clients() {
    let limit = json!({ "count": 2, "time_window": 600, "key": "remote_addr", "rejected_code": 429 });
    let upstream = address_echo();
    let route = |id: &str, plugins: Value| {
        let uri = format!("/{id}");
        json!({ "id": id, "uri": uri, "plugins": plugins, "upstream": upstream.alone() })
    };
    let routes = json!([
        route("told", json!({})),
        route("whitelisted", json!({ "ip-restriction": { "whitelist": ["127.0.0.2"] } })),
        route("limited", json!({ "limit-count": limit })),
    ]);
    let world = World::start(routes, 2, "");
    http2::run(async {
        let client = world.client().await;
        let forger = client.forger();
        assert_eq!(client.get("/whitelisted").await.status, 403);
        assert_eq!(forged(&client, &forger, "127.0.0.2:0", "/whitelisted").await.0, 403);
        let real_ip = forged(&client, &forger, "127.0.0.2:0", "/told").await;
        assert_eq!(real_ip, (200, "127.0.0.1".to_owned()));
        let mut statuses = Vec::new();
        for last in 1..=4 {
            statuses.push(forged(&client, &forger, &format!("127.0.1.{last}:0"), "/limited").await.0);
        }
        assert_eq!(statuses, [200, 200, 429, 429]);
        // A negative check: the forged address does not replace the real one.
        tokio::time::sleep(LATER).await;
        assert_eq!(client.get("/told").await.text(), "127.0.0.1");
    });
    world.gateway.assert_metric("yumen_http3_connections_total", 1.0);
    world.gateway.assert_metric("yumen_http3_faults_total", 0.0);
}

#[test]
fn a_client_in_another_network_is_asked_to_come_back_and_loses_nothing() {
    let gate = Gate::default();
    let waits = gate.clone();
    let upstream = Upstream::start(move |request, stream| {
        if request.target == "/slow" {
            waits.pass();
        }
        let real_ip = request.field("x-real-ip").unwrap_or("").to_owned();
        respond(stream, 200, "", &[real_ip.as_bytes(), b" ", &request.body].concat())
    });
    let world = World::start(json!([{ "id": "1", "uri": "/*", "upstream": upstream.alone() }]), 4, "");
    let from = |address: &str, body: &[u8]| [address.as_bytes(), b" ", body].concat();
    http2::run(async {
        let client = world.client().await;
        let body = noise(200_000);
        let slow = client.ask(request("POST", "/slow"), &body);
        let moving = async {
            eventually_async("it is at the upstream", 10, || upstream.requests() == 1).await;
            client.move_to("127.0.0.2");
            let begun = std::time::Instant::now();
            let mut served = 0;
            let real_ip = loop {
                match client.sender.clone().send_request(request("POST", "/quick")).await {
                    Ok(stream) => {
                        let answer = exchange(stream, &body, None).await.expect("an answer");
                        assert_eq!(answer.status, 200);
                        assert!(answer.body == from("127.0.0.1", &body), "{:?}", &answer.body[..10]);
                        served += 1;
                    }
                    Err(error) => break error,
                }
                assert!(begun.elapsed() < LATER * 4, "nobody tells the client to come back");
                // Pacing of the requests.
                tokio::time::sleep(Duration::from_millis(20)).await;
            };
            assert!(matches!(real_ip, StreamError::RemoteClosing), "{real_ip}");
            assert!(served > 10, "{served}: a client is not sent away for one datagram");
            let back = client.reconnect(world.gateway.https, "a.test").await;
            let answer = back.ask(request("POST", "/quick"), &body).await;
            assert!(answer.body == from("127.0.0.2", &body), "{:?}", &answer.body[..10]);
            // A negative check: an exchange in flight may last, and the old connection waits for it.
            tokio::time::sleep(LATER + LATER / 2).await;
            gate.open();
        };
        let (slow, ()) = tokio::join!(slow, moving);
        assert!(slow.status == 200 && slow.body == from("127.0.0.1", &body));
        let end = client.driver.await.unwrap();
        assert!(end.is_h3_no_error(), "{end}");
    });
    world.gateway.assert_metric("yumen_http3_connections_total", 2.0);
    world.gateway.assert_metric("yumen_http3_faults_total", 0.0);
}
