//! Sets of IP addresses, parsed from addresses and CIDR blocks.
//!
//! Stored as sorted disjoint ranges, so a lookup is one binary search however long the list was. A set of one
//! block is stored as that block alone, since a very large number of routes may have one each.

use std::net::IpAddr;

#[cfg(test)]
mod tests;

/// A set of addresses. IPv4-mapped IPv6 addresses and blocks count as IPv4 (RFC 4291 §2.5.5.2); otherwise the
/// families are separate: `::/0` contains no IPv4 address.
///
/// Takes 16 bytes, and no allocation if it is empty or one IPv4 block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpSet(IpSetRepr);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum IpSetRepr {
    #[default]
    Nothing,
    OneV4 {
        first: u32,
        last: u32,
    },
    OneV6(Box<(u128, u128)>),
    Many(Box<IpRangeSets>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct IpRangeSets {
    v4: SortedRanges<u32>,
    v6: SortedRanges<u128>,
}

/// Disjoint ranges in ascending order, as first and last members. First members are stored separately because
/// only they are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SortedRanges<T> {
    first: Box<[T]>,
    last: Box<[T]>,
}

impl<T: Copy + Ord> SortedRanges<T> {
    fn new(disjoint: Vec<(T, T)>) -> Self {
        let (first, last): (Vec<T>, Vec<T>) = disjoint.into_iter().unzip();
        SortedRanges { first: first.into(), last: last.into() }
    }

    fn contains(&self, member: T) -> bool {
        let end_index = self.first.partition_point(|first| *first <= member);
        end_index > 0 && member <= self.last[end_index - 1]
    }
}

impl IpSet {
    /// The set of all these addresses and blocks. Host bits of a block may be set. The error names the first
    /// entry that is neither.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<IpSet, String> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for entry in entries {
            match block(entry).ok_or_else(|| format!("invalid ip address: {entry}"))? {
                (IpAddr::V4(address), bits) => v4.push(range_v4(address.to_bits(), bits)),
                (IpAddr::V6(address), bits) => v6.push(range_v6(address.to_bits(), bits)),
            }
        }
        merge(&mut v4);
        merge(&mut v6);
        Ok(IpSet(match (&v4[..], &v6[..]) {
            ([], []) => IpSetRepr::Nothing,
            (&[(first, last)], []) => IpSetRepr::OneV4 { first, last },
            ([], &[range]) => IpSetRepr::OneV6(Box::new(range)),
            _ => IpSetRepr::Many(Box::new(IpRangeSets {
                v4: SortedRanges::new(v4),
                v6: SortedRanges::new(v6),
            })),
        }))
    }

    /// Whether the address is in the set.
    pub fn contains(&self, address: IpAddr) -> bool {
        // An IPv4 client of an IPv6 socket has an IPv4-mapped address.
        match (&self.0, address.to_canonical()) {
            (IpSetRepr::OneV4 { first, last }, IpAddr::V4(address)) => {
                (*first..=*last).contains(&address.to_bits())
            }
            (IpSetRepr::OneV6(range), IpAddr::V6(address)) => {
                (range.0..=range.1).contains(&address.to_bits())
            }
            (IpSetRepr::Many(many), IpAddr::V4(address)) => many.v4.contains(address.to_bits()),
            (IpSetRepr::Many(many), IpAddr::V6(address)) => many.v6.contains(address.to_bits()),
            (IpSetRepr::Nothing | IpSetRepr::OneV4 { .. } | IpSetRepr::OneV6(_), _) => false,
        }
    }

    /// Whether the set contains no address.
    pub fn is_empty(&self) -> bool {
        self.0 == IpSetRepr::Nothing
    }
}

/// Sorts ranges and merges those that overlap.
fn merge<T: Copy + Ord>(ranges: &mut Vec<(T, T)>) {
    ranges.sort_unstable();
    ranges.dedup_by(|next, last| {
        let overlap = next.0 <= last.1;
        if overlap {
            last.1 = last.1.max(next.1);
        }
        overlap
    });
}

/// Parses an entry into its address and prefix length.
fn block(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match entry.split_once('/') {
        Some((address, bits)) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
            (address, Some(bits.parse::<u32>().ok()?))
        }
        Some(_) => return None,
        None => (entry, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(width);
    if bits > width {
        return None;
    }
    match address.to_canonical() {
        // The first 96 bits of an IPv4-mapped address are its prefix.
        mapped @ IpAddr::V4(_) if width == 128 && bits >= 96 => Some((mapped, bits - 96)),
        IpAddr::V4(_) if width == 128 => Some((address, bits)),
        plain => Some((plain, bits)),
    }
}

fn range_v4(address: u32, bits: u32) -> (u32, u32) {
    let host = u32::MAX.checked_shr(bits).unwrap_or(0);
    (address & !host, address | host)
}

fn range_v6(address: u128, bits: u32) -> (u128, u128) {
    let host = u128::MAX.checked_shr(bits).unwrap_or(0);
    (address & !host, address | host)
}
