//! Sinks that are topics of Apache Kafka. A batch is one record.

pub(crate) mod scram;
pub(crate) mod wire;

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::Instant;
use yumen_plugin::{KafkaMechanism, KafkaSettings, SinkRequest};

use crate::connector::{OutboundConnector, OutboundStream, SendFault};
use scram::ScramLogin;
use wire::{BrokerAddress, KafkaApi, TopicLayout};

/// First pause before a record is sent again while the cluster changes; each further one is twice as long.
const CHANGE_PAUSE: Duration = Duration::from_millis(100);

/// A topic of a cluster.
pub(crate) struct KafkaSink {
    settings: KafkaSettings,
    connector: OutboundConnector,
    /// Connections by host and port.
    connections: HashMap<(String, u16), KafkaConnection>,
    layout: Option<(TopicLayout, Instant)>,
    /// Counts records without a key: partitions take turns.
    turn: usize,
}

impl KafkaSink {
    pub(crate) fn new(settings: KafkaSettings, connector: OutboundConnector) -> KafkaSink {
        // Senders of several nodes must not all begin with the first partition.
        let turn = getrandom::u32().unwrap_or(0) as usize;
        KafkaSink { settings, connector, connections: HashMap::new(), layout: None, turn }
    }

    /// Sends the body as one record and waits for its acknowledgement.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<(), SendFault> {
        let value = request.body.concat();
        let limit = Instant::now() + Duration::from_millis(self.settings.timeout_ms);
        let mut pause = CHANGE_PAUSE;
        let result = loop {
            let result = self.produce(&value).await;
            if result.is_err() {
                // Leaders move, and a broken connection must not be used again.
                self.layout = None;
                self.connections.clear();
            }
            // A topic that was just created has no leader yet, and a broker that ends hands its partitions over. By
            // default a batch is not repeated, so that each such change would cost one.
            if !matches!(result, Err(ProduceFault::Changing(_))) || Instant::now() + pause >= limit {
                break result;
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        };
        let KafkaSettings { topic, brokers, .. } = &self.settings;
        let list =
            || brokers.iter().map(|(host, port)| format!("{host}:{port}")).collect::<Vec<_>>().join(",");
        result.map_err(|why| match why {
            ProduceFault::Retry(why) | ProduceFault::Changing(why) => {
                SendFault::Failed(format!("failed to send data to Kafka topic: {why}, brokers: {}", list()))
            }
            ProduceFault::Refused(why) => {
                SendFault::Refused(format!("failed to send data to Kafka topic: {topic}: {why}"))
            }
        })
    }

    async fn produce(&mut self, value: &[u8]) -> Result<(), ProduceFault> {
        let leader = self.leader().await?;
        let settings = &self.settings;
        let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let batch =
            wire::record_batch(settings.key.as_deref().map(str::as_bytes), value, unix.as_millis() as i64);
        let acks = if settings.awaits_replicas { -1 } else { 1 };
        let timeout_ms = i32::try_from(settings.timeout_ms).unwrap_or(i32::MAX);
        let body = wire::produce_body(&settings.topic, leader.partition, acks, timeout_ms, &batch);
        let reply = self.call(&leader.address, KafkaApi::Produce, &body).await?;
        match wire::read_produce(&reply).ok_or_else(malformed)? {
            0 => Ok(()),
            // These fail again, whatever is done: the record is too large or invalid.
            code @ (2 | 10 | 18 | 87) => Err(ProduceFault::Refused(error_text(code))),
            code => Err(ProduceFault::of(code)),
        }
    }

    /// The partition for the next record, and the broker that leads it.
    async fn leader(&mut self) -> Result<LeadingBroker, ProduceFault> {
        let max_age = Duration::from_millis(self.settings.refresh_ms);
        if self.layout.as_ref().is_none_or(|(_, since)| since.elapsed() >= max_age) {
            self.layout = Some((self.find_layout().await?, Instant::now()));
        }
        let unknown = || ProduceFault::Changing("the topic has no partition with a leader".to_owned());
        let (layout, _) = self.layout.as_ref().ok_or_else(unknown)?;
        // With a key the partition must not depend on the health of others.
        let partition = match &self.settings.key {
            Some(key) => {
                let index = wire::key_index(key.as_bytes(), layout.partitions.len());
                layout.partitions.get(index)
            }
            None => {
                self.turn = self.turn.wrapping_add(1);
                let led: Vec<_> = layout.partitions.iter().filter(|one| one.leader >= 0).collect();
                led.get(self.turn % led.len().max(1)).copied()
            }
        };
        let partition = partition.ok_or_else(unknown)?;
        let address = layout.brokers.iter().find(|broker| broker.node == partition.leader);
        Ok(LeadingBroker { partition: partition.partition, address: address.ok_or_else(unknown)?.clone() })
    }

    /// Asks the brokers of the settings in turn.
    async fn find_layout(&mut self) -> Result<TopicLayout, ProduceFault> {
        let mut last = ProduceFault::Retry("no broker is configured".to_owned());
        for (host, port) in self.settings.brokers.clone() {
            let address = BrokerAddress { node: -1, host, port };
            let body = wire::metadata_body(&self.settings.topic);
            match self.call(&address, KafkaApi::Metadata, &body).await {
                Ok(reply) => {
                    let layout = wire::read_metadata(&reply).ok_or_else(malformed)?;
                    return match layout.error {
                        0 => Ok(layout),
                        code => Err(ProduceFault::of(code)),
                    };
                }
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    /// Sends a request to a broker, over its kept connection if there is one.
    async fn call(
        &mut self,
        broker: &BrokerAddress,
        api: KafkaApi,
        body: &[u8],
    ) -> Result<Vec<u8>, ProduceFault> {
        let limit = Duration::from_millis(self.settings.timeout_ms);
        let key = (broker.host.clone(), broker.port);
        let kept = self.connections.remove(&key);
        let is_kept = kept.is_some();
        let mut connection = match kept {
            Some(connection) => connection,
            None => KafkaConnection::open(&self.settings, &self.connector, broker).await?,
        };
        let mut result = connection.exchange(api, body, limit).await;
        if is_kept && result.is_err() {
            // Brokers close idle connections. A record may arrive twice: sinks take entries at least once.
            connection = KafkaConnection::open(&self.settings, &self.connector, broker).await?;
            result = connection.exchange(api, body, limit).await;
        }
        let reply = result?;
        self.connections.insert(key, connection);
        Ok(reply)
    }
}

/// A partition and the broker that leads it.
struct LeadingBroker {
    partition: i32,
    address: BrokerAddress,
}

/// The reason why a record was not taken.
enum ProduceFault {
    /// The cluster elects a leader, creates the topic, or lost the broker: it may take the record in moments.
    Changing(String),
    Retry(String),
    Refused(String),
}

impl ProduceFault {
    fn of(code: i16) -> ProduceFault {
        match code {
            3 | 5 | 6 => ProduceFault::Changing(error_text(code)),
            code => ProduceFault::Retry(error_text(code)),
        }
    }
}

fn malformed() -> ProduceFault {
    ProduceFault::Retry("the broker sent a malformed response".to_owned())
}

/// The error codes that a producer meets.
fn error_text(code: i16) -> String {
    let text = match code {
        2 => "the record is corrupt",
        3 => "the topic or partition is unknown",
        5 => "the partition has no leader",
        6 => "the broker does not lead the partition",
        7 => "timeout of the broker",
        10 => "the record is too large; lower batch_max_size",
        18 => "the batch is larger than a segment",
        19 | 20 => "too few replicas are in sync",
        29 => "no authorization for the topic",
        33 => "the broker does not have the SASL mechanism",
        35 => "the broker does not support the version of the request",
        58 => "login refused",
        87 => "the record is invalid",
        _ => "error of the broker",
    };
    format!("{text} (error code {code})")
}

/// A connection to a broker.
struct KafkaConnection {
    stream: Box<dyn OutboundStream>,
    correlation: i32,
}

impl KafkaConnection {
    /// Connects and logs in.
    async fn open(
        settings: &KafkaSettings,
        connector: &OutboundConnector,
        broker: &BrokerAddress,
    ) -> Result<KafkaConnection, ProduceFault> {
        let limit = Duration::from_millis(settings.timeout_ms);
        let stream = connector.connect(&broker.host, broker.port, settings.tls.as_ref(), limit).await;
        let failed = |(SendFault::Failed(why) | SendFault::Refused(why))| ProduceFault::Changing(why);
        let mut connection = KafkaConnection { stream: stream.map_err(failed)?, correlation: 0 };
        connection.log_in(settings, limit).await?;
        Ok(connection)
    }

    async fn exchange(
        &mut self,
        api: KafkaApi,
        body: &[u8],
        limit: Duration,
    ) -> Result<Vec<u8>, ProduceFault> {
        self.correlation = self.correlation.wrapping_add(1);
        let request = wire::request(api, self.correlation, body);
        let exchange = async {
            self.stream.write_all(&request).await?;
            self.stream.flush().await?;
            let mut length = [0; 4];
            self.stream.read_exact(&mut length).await?;
            let length = usize::try_from(i32::from_be_bytes(length)).unwrap_or(usize::MAX);
            if length > wire::RESPONSE_BYTES_MAX {
                return Err(std::io::Error::other("the broker sent a response over 4 MiB"));
            }
            let mut response = vec![0; length];
            self.stream.read_exact(&mut response).await?;
            Ok(response)
        };
        let response = match tokio::time::timeout(limit, exchange).await {
            Ok(response) => response.map_err(|error| ProduceFault::Changing(error.to_string()))?,
            Err(_) => return Err(ProduceFault::Retry("timeout".to_owned())),
        };
        match wire::response_parts(&response) {
            Some((correlation, body)) if correlation == self.correlation => Ok(body.to_vec()),
            _ => Err(malformed()),
        }
    }

    /// Logs in, if the settings have credentials.
    async fn log_in(&mut self, settings: &KafkaSettings, limit: Duration) -> Result<(), ProduceFault> {
        let Some(login) = &settings.login else { return Ok(()) };
        let body = wire::handshake_body(login.mechanism.name());
        let reply = self.exchange(KafkaApi::SaslHandshake, &body, limit).await?;
        let (error, mechanisms) = wire::read_handshake(&reply).ok_or_else(malformed)?;
        if error != 0 {
            let known = mechanisms.join(", ");
            return Err(ProduceFault::Retry(format!("{}; it has: {known}", error_text(error))));
        }
        if login.mechanism == KafkaMechanism::Plain {
            // RFC 4616 §2.
            let message = format!("\0{}\0{}", login.user, login.password);
            return self.authenticate(message.as_bytes(), limit).await.map(drop);
        }
        let mut random = [0; 18];
        getrandom::fill(&mut random).map_err(|error| ProduceFault::Retry(error.to_string()))?;
        let nonce = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let scram =
            ScramLogin::new(login.mechanism, &login.user, &login.password, nonce).ok_or_else(malformed)?;
        let server_first = self.authenticate(scram.first().as_bytes(), limit).await?;
        let proof = scram.proof(&server_first).map_err(ProduceFault::Retry)?;
        let server_final = self.authenticate(proof.message.as_bytes(), limit).await?;
        proof.check(&server_final).map_err(ProduceFault::Retry)
    }

    async fn authenticate(&mut self, message: &[u8], limit: Duration) -> Result<Vec<u8>, ProduceFault> {
        let body = wire::authenticate_body(message);
        let reply = self.exchange(KafkaApi::SaslAuthenticate, &body, limit).await?;
        let response = wire::read_authenticate(&reply).ok_or_else(malformed)?;
        match response.error {
            0 => Ok(response.message.to_vec()),
            code => Err(ProduceFault::Retry(format!("{}: {}", error_text(code), response.reason))),
        }
    }
}

#[cfg(test)]
mod tests;
