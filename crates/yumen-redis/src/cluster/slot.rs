//! The hash slots of Redis Cluster.

/// The number of slots.
pub(super) const SLOTS: usize = 16_384;

/// The slot of a key; of its hash tag in braces, if it has one.
pub(super) fn slot(key: &[u8]) -> usize {
    usize::from(crc16(hashed(key))) % SLOTS
}

fn hashed(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else { return key };
    let rest = &key[open + 1..];
    match rest.iter().position(|byte| *byte == b'}') {
        Some(length) if length > 0 => &rest[..length],
        _ => key,
    }
}

/// CRC-16/XMODEM, as the Redis Cluster specification requires.
fn crc16(bytes: &[u8]) -> u16 {
    let shift = |crc: u16, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
    let byte = |crc: u16, byte: &u8| (0..8).fold(crc ^ (u16::from(*byte) << 8), shift);
    bytes.iter().fold(0, byte)
}
