use std::net::SocketAddr;

use super::{Source, destination};

fn check(packet_info: &[Vec<u8>], expected: Option<&str>) {
    let expected = expected.map(|local| local.parse::<SocketAddr>().unwrap());
    assert_eq!(destination(&packet_info.concat(), 53), expected, "{packet_info:?}");
}

fn packet_info(local: &str) -> Vec<u8> {
    Source::new(local.parse().unwrap()).bytes().to_vec()
}

#[test]
fn a_datagram_is_answered_from_the_address_it_was_sent_to() {
    check(&[packet_info("127.0.0.2:53")], Some("127.0.0.2:53"));
    check(&[packet_info("[2001:db8::7]:53")], Some("[2001:db8::7]:53"));
    check(&[packet_info("[fe80::1%3]:53")], Some("[fe80::1%3]:53"));
    // With both kinds, the IPv4 message contains the address to reply from.
    check(&[packet_info("[::ffff:10.255.255.255]:53"), packet_info("10.0.0.1:53")], Some("10.0.0.1:53"));
}

#[test]
fn multicast_datagram_is_answered_from_a_system_address() {
    check(&[packet_info("[ff02::1]:53")], None);
    check(&[packet_info("224.0.0.1:53")], None);
    check(&[packet_info("0.0.0.0:53")], None);
}

#[test]
fn other_control_messages_are_ignored() {
    let mut other = packet_info("127.0.0.9:53");
    other[size_of::<usize>() + 4] = 0x7f;
    check(&[], None);
    check(std::slice::from_ref(&other), None);
    check(&[other, packet_info("127.0.0.2:53")], Some("127.0.0.2:53"));
}

#[test]
fn truncated_control_data_is_ignored() {
    for whole in [packet_info("127.0.0.2:53"), packet_info("[2001:db8::7]:53")] {
        // The last 4 bytes are padding up to a machine word.
        for length in 0..whole.len() - 4 {
            check(&[whole[..length].to_vec()], None);
        }
    }
    let mut endless = packet_info("127.0.0.2:53");
    endless[..size_of::<usize>()].copy_from_slice(&0_usize.to_ne_bytes());
    check(&[endless.clone()], None);
    endless[..size_of::<usize>()].copy_from_slice(&usize::MAX.to_ne_bytes());
    check(&[endless], None);
}
