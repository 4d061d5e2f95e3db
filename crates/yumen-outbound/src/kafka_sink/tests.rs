//! The producer against a broker that answers by a script.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use yumen_plugin::{KafkaLogin, KafkaMechanism, KafkaSettings, SinkRequest};

use super::{KafkaSink, wire};
use crate::connector::{OutboundConnector, SendFault};

/// The state of a broker that leads both partitions of one topic.
#[derive(Default)]
struct BrokerState {
    port: u16,
    /// The accepted PLAIN message; none without login.
    login: Option<Vec<u8>>,
    /// Error codes of the next produce requests; afterwards records are taken.
    errors: Vec<i16>,
    /// Whether the connection ends after each produce response.
    closes: bool,
    /// Partition and batch of all records that were taken.
    taken: Vec<(i32, Vec<u8>)>,
    connections: usize,
    metadata_requests: usize,
}

type SharedBroker = Arc<Mutex<BrokerState>>;

async fn broker(state: BrokerState) -> SharedBroker {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let state = Arc::new(Mutex::new(BrokerState { port, ..state }));
    let shared = state.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            shared.lock().unwrap().connections += 1;
            tokio::spawn(serve(stream, shared.clone()));
        }
    });
    state
}

async fn serve(mut stream: TcpStream, state: SharedBroker) -> Option<()> {
    let mut is_authenticated = state.lock().unwrap().login.is_none();
    loop {
        let length = stream.read_u32().await.ok()?;
        let mut request = vec![0; length as usize];
        stream.read_exact(&mut request).await.ok()?;
        let int16 = |at: usize| i16::from_be_bytes(request[at..at + 2].try_into().unwrap());
        let (key, version, client) = (int16(0), int16(2), int16(8) as usize);
        let body = &request[10 + client..];
        let reply = match (key, version) {
            (17, 1) => [&[0, 0, 0, 0, 0, 1, 0, 5][..], b"PLAIN"].concat(),
            (36, 0) => {
                let accepted = state.lock().unwrap().login.as_deref() == Some(&body[4..]);
                is_authenticated = accepted;
                let code: i16 = if accepted { 0 } else { 58 };
                [&code.to_be_bytes()[..], &[0xff, 0xff, 0, 0, 0, 0]].concat()
            }
            (3, 4) if is_authenticated => metadata(&mut state.lock().unwrap()),
            (0, 3) if is_authenticated => produce(body, &mut state.lock().unwrap()),
            // A broker closes the connection of a client that it does not understand.
            _ => return None,
        };
        stream.write_u32(reply.len() as u32 + 4).await.ok()?;
        stream.write_all(&request[4..8]).await.ok()?;
        stream.write_all(&reply).await.ok()?;
        if key == 0 && state.lock().unwrap().closes {
            return None;
        }
    }
}

fn metadata(state: &mut BrokerState) -> Vec<u8> {
    state.metadata_requests += 1;
    let int32 = |number: u32| number.to_be_bytes();
    let partition = |number: u32| {
        [&[0, 0][..], &int32(number), &int32(1), &int32(1), &int32(1), &int32(1), &int32(1)].concat()
    };
    [
        &int32(0)[..],
        &int32(1),
        &int32(1),
        b"\x00\x09127.0.0.1",
        &int32(state.port.into()),
        &[0xff, 0xff, 0xff, 0xff],
        &int32(1),
        &int32(1),
        b"\x00\x00\x00\x04logs\x00",
        &int32(2),
        &partition(0),
        &partition(1),
    ]
    .concat()
}

fn produce(body: &[u8], state: &mut BrokerState) -> Vec<u8> {
    let int32 = |at: usize| i32::from_be_bytes(body[at..at + 4].try_into().unwrap());
    // Transaction, acks, timeout, one topic `logs`, one partition.
    assert_eq!(body[12..18], *b"\x00\x04logs", "the topic");
    let (partition, length) = (int32(22), int32(26) as usize);
    let batch = &body[30..];
    assert_eq!(batch.len(), length);
    let error = if state.errors.is_empty() { 0 } else { state.errors.remove(0) };
    if error == 0 {
        state.taken.push((partition, batch.to_vec()));
    }
    let head = [&[0, 0, 0, 1, 0, 4][..], b"logs", &[0, 0, 0, 1], &partition.to_be_bytes()].concat();
    [&head[..], &error.to_be_bytes(), &[0; 16], &[0; 4]].concat()
}

fn sink(state: &SharedBroker, change: impl FnOnce(&mut KafkaSettings)) -> KafkaSink {
    let mut settings = KafkaSettings {
        brokers: vec![("127.0.0.1".to_owned(), state.lock().unwrap().port)],
        topic: "logs".to_owned(),
        key: None,
        awaits_replicas: false,
        timeout_ms: 20_000,
        refresh_ms: 30_000,
        login: None,
        tls: None,
    };
    change(&mut settings);
    KafkaSink::new(settings, OutboundConnector::default())
}

fn record(text: &'static str) -> SinkRequest {
    let (start, end) = text.split_at(1);
    let body = vec![Bytes::from_static(start.as_bytes()), Bytes::from_static(end.as_bytes())];
    SinkRequest { body, entries: 1, ..SinkRequest::default() }
}

/// Checks a batch against the record that it should have.
fn assert_batch(batch: &[u8], key: Option<&[u8]>, value: &str) {
    let time = i64::from_be_bytes(batch[27..35].try_into().unwrap());
    assert_eq!(batch, wire::record_batch(key, value.as_bytes(), time));
}

#[tokio::test]
async fn a_batch_is_one_record_and_partitions_take_turns() {
    let broker = broker(BrokerState::default()).await;
    let mut sink = sink(&broker, |_| {});
    for text in ["[1,2]", "[3]", "[4]"] {
        assert_eq!(sink.send(&record(text)).await, Ok(()));
    }
    let state = broker.lock().unwrap();
    assert_batch(&state.taken[0].1, None, "[1,2]");
    let partitions: Vec<i32> = state.taken.iter().map(|(partition, _)| *partition).collect();
    assert!(partitions == [0, 1, 0] || partitions == [1, 0, 1], "{partitions:?}");
    assert_eq!((state.connections, state.metadata_requests), (1, 1));
}

#[tokio::test]
async fn a_key_keeps_its_partition() {
    let broker = broker(BrokerState::default()).await;
    let mut sink = sink(&broker, |settings| settings.key = Some("node".to_owned()));
    for text in ["[1]", "[2]", "[3]"] {
        assert_eq!(sink.send(&record(text)).await, Ok(()));
    }
    let state = broker.lock().unwrap();
    assert_batch(&state.taken[2].1, Some(b"node"), "[3]");
    let expected = wire::key_index(b"node", 2) as i32;
    assert!(state.taken.iter().all(|(partition, _)| *partition == expected));
}

#[tokio::test]
async fn a_leader_that_moved_is_found_again_within_the_timeout() {
    async fn check(errors: Vec<i16>, timeout_ms: u64, expected: Result<usize, &str>) {
        let broker = broker(BrokerState { errors, ..BrokerState::default() }).await;
        let result = sink(&broker, |settings| settings.timeout_ms = timeout_ms).send(&record("[1]")).await;
        let state = broker.lock().unwrap();
        match (result, expected) {
            (Ok(()), Ok(lookups)) => assert_eq!((state.metadata_requests, state.taken.len()), (lookups, 1)),
            (Err(SendFault::Failed(why)), Err(text)) => assert!(why.contains(text), "{why}"),
            (result, _) => panic!("{result:?} instead of {expected:?}"),
        }
    }
    check(vec![], 20_000, Ok(1)).await;
    check(vec![6], 20_000, Ok(2)).await;
    check(vec![3, 5], 20_000, Ok(3)).await;
    let why = "failed to send data to Kafka topic: the broker does not lead the partition";
    check(vec![6; 9], 250, Err(why)).await;
    // Errors that a pause does not cure end the batch at once.
    check(vec![19], 20_000, Err("too few replicas are in sync")).await;
}

#[tokio::test]
async fn a_record_that_is_too_large_is_not_repeated() {
    let broker = broker(BrokerState { errors: vec![10], ..BrokerState::default() }).await;
    let result = sink(&broker, |_| {}).send(&record("[1]")).await;
    assert!(matches!(&result, Err(SendFault::Refused(why)) if why.contains("too large")), "{result:?}");
}

#[tokio::test]
async fn a_connection_that_the_broker_closed_is_replaced() {
    let broker = broker(BrokerState { closes: true, ..BrokerState::default() }).await;
    let mut sink = sink(&broker, |_| {});
    for text in ["[1]", "[2]", "[3]"] {
        assert_eq!(sink.send(&record(text)).await, Ok(()));
    }
    assert_eq!(broker.lock().unwrap().taken.len(), 3);
}

#[tokio::test]
async fn a_password_is_sent_before_anything_else() {
    let broker =
        broker(BrokerState { login: Some(b"\0shop\0secret".to_vec()), ..BrokerState::default() }).await;
    let with = |mechanism, password: &str| {
        let login = KafkaLogin { mechanism, user: "shop".to_owned(), password: password.to_owned() };
        sink(&broker, |settings| settings.login = Some(login))
    };
    assert_eq!(with(KafkaMechanism::Plain, "secret").send(&record("[1]")).await, Ok(()));
    for (mechanism, password) in [(KafkaMechanism::Plain, "wrong"), (KafkaMechanism::ScramSha256, "secret")] {
        let Err(SendFault::Failed(why)) = with(mechanism, password).send(&record("[2]")).await else {
            panic!("{password} was taken")
        };
        assert!(why.contains("login refused"), "{why}");
        assert!(!why.contains("secret") && !why.contains("wrong"), "{why}");
    }
    assert_eq!(broker.lock().unwrap().taken.len(), 1);
}

#[tokio::test]
async fn a_server_that_is_no_broker_is_a_failure() {
    for reply in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"\0\0\0\x04\0\0\0\x63",
        b"\0\0\0\x08\0\0\0\x01\0\0\0\0",
        b"",
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = SharedBroker::default();
        state.lock().unwrap().port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 1024]).await;
                let _ = stream.write_all(reply).await;
            }
        });
        let result = sink(&state, |settings| settings.timeout_ms = 300).send(&record("[1]")).await;
        assert!(matches!(result, Err(SendFault::Failed(_))), "{reply:?}: {result:?}");
    }
}
