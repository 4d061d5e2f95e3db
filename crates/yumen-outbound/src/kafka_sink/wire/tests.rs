use proptest::prelude::*;

use super::{
    BrokerAddress, CRC32, CRC32C, KafkaApi, PartitionLeader, SaslResponse, TopicLayout, authenticate_body,
    checksum, handshake_body, key_index, metadata_body, produce_body, read_authenticate, read_handshake,
    read_metadata, read_produce, record_batch, request, response_parts,
};

fn hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

#[test]
fn checksums_are_those_of_the_standards() {
    assert_eq!(checksum(CRC32C, b"123456789"), 0xe306_9283);
    assert_eq!(checksum(CRC32, b"123456789"), 0xcbf4_3926);
    assert_eq!(key_index(b"123456789", 7), 0xcbf4_3926 % 7);
    assert_eq!(key_index(b"a", 0), 0);
}

/// Batches of `kafka-python` with the same record.
#[test]
fn batches_equal_those_of_another_client() {
    let expected =
        "0000000000000000 00000040 00000000 02 a7cc2159 0000 00000000 0000018bcfe5687b 0000018bcfe5687b
                    ffffffffffffffff ffff ffffffff 00000001 1c 00 00 00 02 6b 0e 7b2261223a317d 00";
    let mut expected = hex(expected);
    // The leader epoch, which the checksum does not cover: unknown instead of 0.
    expected[12..16].copy_from_slice(&[0xff; 4]);
    assert_eq!(record_batch(Some(b"k"), b"{\"a\":1}", 1_700_000_000_123), expected);
    let long = record_batch(None, &[b'x'; 200], 1_700_000_000_123);
    assert_eq!(long[..12], hex("0000000000000000 00000102"));
    assert_eq!(long[16..21], hex("02 114ab5fe"));
    assert_eq!(long.len(), 12 + 0x102);
}

#[test]
fn requests_have_a_header_and_a_length() {
    let body = metadata_body("logs");
    assert_eq!(body, hex("00000001 0004 6c6f6773 01"));
    let expected = "0000001a 0003 0004 00000007 0005 79756d656e 00000001 0004 6c6f6773 01";
    assert_eq!(request(KafkaApi::Metadata, 7, &body), hex(expected));
    let body = produce_body("t", 3, -1, 1000, b"batch");
    assert_eq!(body, hex("ffff ffff 000003e8 00000001 0001 74 00000001 00000003 00000005 6261746368"));
    assert_eq!(handshake_body("PLAIN"), hex("0005 504c41494e"));
    assert_eq!(authenticate_body(b"ab"), hex("00000002 6162"));
}

const METADATA: &str = "00000000 00000001 00000005 0001 61 00002384 ffff ffff 00000005 00000001 0000 0004 6c6f6773 00
    00000002 0000 00000001 00000005 00000001 00000005 00000001 00000005 0005 00000000 ffffffff 00000000 00000000";

#[test]
fn responses_are_read() {
    let broker = BrokerAddress { node: 5, host: "a".to_owned(), port: 9092 };
    let partitions =
        vec![PartitionLeader { partition: 0, leader: -1 }, PartitionLeader { partition: 1, leader: 5 }];
    let layout = TopicLayout { brokers: vec![broker], error: 0, partitions };
    assert_eq!(read_metadata(&hex(METADATA)), Some(layout));
    let produced = "00000001 0001 74 00000001 00000003 0006 ffffffffffffffff ffffffffffffffff 00000000";
    assert_eq!(read_produce(&hex(produced)), Some(6));
    let handshake = "0021 00000002 0005 504c41494e 0001 78";
    assert_eq!(read_handshake(&hex(handshake)), Some((33, vec!["PLAIN".to_owned(), "x".to_owned()])));
    let expected = SaslResponse { error: 58, reason: "no".to_owned(), message: b"ab" };
    assert_eq!(read_authenticate(&hex("003a 0002 6e6f 00000002 6162")), Some(expected));
    assert_eq!(response_parts(&hex("00000007 61")), Some((7, &b"a"[..])));
    let whole = hex(METADATA);
    (0..whole.len()).for_each(|end| assert_eq!(read_metadata(&whole[..end]), None, "{end}"));
    // A length that the bytes do not have.
    assert_eq!(read_handshake(&hex("0000 7fffffff")), None);
    assert_eq!(read_authenticate(&hex("0000 ffff 7fffffff 00")), None);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        read_metadata(&bytes);
        read_produce(&bytes);
        read_handshake(&bytes);
        read_authenticate(&bytes);
        response_parts(&bytes);
    }

    #[test]
    fn a_changed_byte_is_read_without_panic(at in 0_usize..100, value in any::<u8>()) {
        let mut bytes = hex(METADATA);
        let at = at % bytes.len();
        bytes[at] = value;
        read_metadata(&bytes);
    }
}
