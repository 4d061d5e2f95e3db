//! Messages of Apache Kafka: the requests that a producer needs, in versions that brokers from 2.1 on accept.
//!
//! Pure. Reads foreign bytes without recursion; lengths are checked against the bytes that are there.

/// Maximum size of a response in bytes.
pub(crate) const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The kind of a request: its key and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KafkaApi {
    Produce,
    Metadata,
    SaslHandshake,
    SaslAuthenticate,
}

impl KafkaApi {
    fn key_and_version(self) -> (i16, i16) {
        match self {
            KafkaApi::Produce => (0, 3),
            KafkaApi::Metadata => (3, 4),
            KafkaApi::SaslHandshake => (17, 1),
            KafkaApi::SaslAuthenticate => (36, 0),
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(i16::MAX as usize)];
    out.extend_from_slice(&(bytes.len() as i16).to_be_bytes());
    out.extend_from_slice(bytes);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as i32).to_be_bytes());
    out.extend_from_slice(bytes);
}

/// A request with its length and header.
pub(crate) fn request(api: KafkaApi, correlation: i32, body: &[u8]) -> Vec<u8> {
    let (key, version) = api.key_and_version();
    let mut out = vec![0; 4];
    out.extend_from_slice(&key.to_be_bytes());
    out.extend_from_slice(&version.to_be_bytes());
    out.extend_from_slice(&correlation.to_be_bytes());
    put_text(&mut out, "yumen");
    out.extend_from_slice(body);
    let length = (out.len() - 4) as i32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

/// The body of a request for the brokers and the partitions of a topic, which the cluster may create.
pub(crate) fn metadata_body(topic: &str) -> Vec<u8> {
    let mut out = 1_i32.to_be_bytes().to_vec();
    put_text(&mut out, topic);
    out.push(1);
    out
}

/// The body of a request that writes one batch.
pub(crate) fn produce_body(topic: &str, partition: i32, acks: i16, timeout_ms: i32, batch: &[u8]) -> Vec<u8> {
    // No transaction.
    let mut out = (-1_i16).to_be_bytes().to_vec();
    out.extend_from_slice(&acks.to_be_bytes());
    out.extend_from_slice(&timeout_ms.to_be_bytes());
    out.extend_from_slice(&1_i32.to_be_bytes());
    put_text(&mut out, topic);
    out.extend_from_slice(&1_i32.to_be_bytes());
    out.extend_from_slice(&partition.to_be_bytes());
    put_bytes(&mut out, batch);
    out
}

/// The body of a request that chooses a SASL mechanism.
pub(crate) fn handshake_body(mechanism: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_text(&mut out, mechanism);
    out
}

/// The body of a request with a message of a SASL mechanism.
pub(crate) fn authenticate_body(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_bytes(&mut out, message);
    out
}

/// Reads the members of a response in order.
struct KafkaReader<'b>(&'b [u8]);

impl<'b> KafkaReader<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn int8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn int16(&mut self) -> Option<i16> {
        Some(i16::from_be_bytes(self.take(2)?.try_into().ok()?))
    }

    fn int32(&mut self) -> Option<i32> {
        Some(i32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    /// A text that may be absent.
    fn text(&mut self) -> Option<Option<String>> {
        match self.int16()? {
            -1 => Some(None),
            length => {
                let bytes = self.take(usize::try_from(length).ok()?)?;
                Some(Some(String::from_utf8_lossy(bytes).into_owned()))
            }
        }
    }

    fn bytes(&mut self) -> Option<&'b [u8]> {
        match self.int32()? {
            -1 => Some(&[]),
            length => self.take(usize::try_from(length).ok()?),
        }
    }

    /// The items of a list. Its length is not trusted: each item takes bytes, so a wrong one ends with them.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.int32()?;
        let mut items = Vec::new();
        for _ in 0..count {
            items.push(item(self)?);
        }
        Some(items)
    }
}

/// The correlation id of a response, and its body.
pub(crate) fn response_parts(response: &[u8]) -> Option<(i32, &[u8])> {
    let mut reader = KafkaReader(response);
    Some((reader.int32()?, reader.0))
}

/// The address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokerAddress {
    pub(crate) node: i32,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A partition and its leader; -1 while there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PartitionLeader {
    pub(crate) partition: i32,
    pub(crate) leader: i32,
}

/// The brokers of a cluster, and the partitions of one topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicLayout {
    pub(crate) brokers: Vec<BrokerAddress>,
    pub(crate) error: i16,
    /// In the order of their numbers.
    pub(crate) partitions: Vec<PartitionLeader>,
}

/// Reads the response to a metadata request for one topic.
pub(crate) fn read_metadata(body: &[u8]) -> Option<TopicLayout> {
    let mut reader = KafkaReader(body);
    let _throttle_ms = reader.int32()?;
    let brokers = reader.list(|reader| {
        let node = reader.int32()?;
        let host = reader.text()??;
        let port = u16::try_from(reader.int32()?).ok()?;
        let _rack = reader.text()?;
        Some(BrokerAddress { node, host, port })
    })?;
    let _cluster = reader.text()?;
    let _controller = reader.int32()?;
    let mut topics = reader.list(|reader| {
        let error = reader.int16()?;
        let _name = reader.text()?;
        let _is_internal = reader.int8()?;
        let partitions = reader.list(|reader| {
            let _error = reader.int16()?;
            let (partition, leader) = (reader.int32()?, reader.int32()?);
            let _replicas = reader.list(KafkaReader::int32)?;
            let _in_sync = reader.list(KafkaReader::int32)?;
            Some(PartitionLeader { partition, leader })
        })?;
        Some((error, partitions))
    })?;
    let (error, mut partitions) = topics.pop()?;
    partitions.sort_by_key(|partition| partition.partition);
    Some(TopicLayout { brokers, error, partitions })
}

/// Reads the error code of the response to a produce request for one partition.
pub(crate) fn read_produce(body: &[u8]) -> Option<i16> {
    let mut reader = KafkaReader(body);
    let topics = reader.list(|reader| {
        let _name = reader.text()?;
        reader.list(|reader| {
            let _partition = reader.int32()?;
            let error = reader.int16()?;
            let _offset_and_time = reader.take(16)?;
            Some(error)
        })
    })?;
    topics.into_iter().flatten().next()
}

/// Reads the error code of a SASL handshake, and the mechanisms of the broker.
pub(crate) fn read_handshake(body: &[u8]) -> Option<(i16, Vec<String>)> {
    let mut reader = KafkaReader(body);
    let error = reader.int16()?;
    let mechanisms = reader.list(|reader| reader.text()?)?;
    Some((error, mechanisms))
}

/// The response to a message of a SASL mechanism.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SaslResponse<'b> {
    pub(crate) error: i16,
    pub(crate) reason: String,
    pub(crate) message: &'b [u8],
}

pub(crate) fn read_authenticate(body: &[u8]) -> Option<SaslResponse<'_>> {
    let mut reader = KafkaReader(body);
    let error = reader.int16()?;
    let reason = reader.text()?.unwrap_or_default();
    Some(SaslResponse { error, reason, message: reader.bytes()? })
}

/// A batch of one record, in the format that Kafka has had since 0.11.
pub(crate) fn record_batch(key: Option<&[u8]>, value: &[u8], unix_ms: i64) -> Vec<u8> {
    // Attributes, and no difference of time and offset to the batch.
    let mut record = vec![0, 0, 0];
    put_varint(&mut record, key.map_or(-1, |key| key.len() as i64));
    record.extend_from_slice(key.unwrap_or_default());
    put_varint(&mut record, value.len() as i64);
    record.extend_from_slice(value);
    // No headers.
    record.push(0);
    // The part that the checksum covers.
    let mut body = Vec::with_capacity(record.len() + 64);
    body.extend_from_slice(&[0; 6]);
    body.extend_from_slice(&unix_ms.to_be_bytes());
    body.extend_from_slice(&unix_ms.to_be_bytes());
    // Neither a transaction nor a sequence: producer id, epoch and sequence are -1.
    body.extend_from_slice(&[0xff; 14]);
    body.extend_from_slice(&1_i32.to_be_bytes());
    put_varint(&mut body, record.len() as i64);
    body.extend_from_slice(&record);
    let mut out = vec![0; 8];
    // Leader epoch, magic and checksum are 9 bytes.
    out.extend_from_slice(&((body.len() + 9) as i32).to_be_bytes());
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    out.push(2);
    out.extend_from_slice(&checksum(CRC32C, &body).to_be_bytes());
    out.extend_from_slice(&body);
    out
}

/// A signed number in zigzag form, seven bits per byte.
fn put_varint(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The reversed polynomial of Castagnoli, for record batches.
const CRC32C: u32 = 0x82f6_3b78;
/// The reversed polynomial of IEEE 802.3, for the partition of a key.
const CRC32: u32 = 0xedb8_8320;

const fn table(polynomial: u32) -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut value, mut bit) = (at as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        table[at] = value;
        at += 1;
    }
    table
}

fn checksum(polynomial: u32, bytes: &[u8]) -> u32 {
    static CASTAGNOLI: [u32; 256] = table(CRC32C);
    static IEEE: [u32; 256] = table(CRC32);
    let table = if polynomial == CRC32C { &CASTAGNOLI } else { &IEEE };
    !bytes.iter().fold(!0_u32, |value, byte| value >> 8 ^ table[usize::from(value as u8 ^ byte)])
}

/// The place of a key among partitions, as the Kafka client of APISIX finds it.
pub(crate) fn key_index(key: &[u8], partitions: usize) -> usize {
    checksum(CRC32, key) as usize % partitions.max(1)
}

#[cfg(test)]
mod tests;
