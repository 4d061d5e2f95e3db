//! Heads whose fields arrive one by one, from HTTP/2 and HTTP/3: written as HTTP/1 lines and checked by the
//! same rules.
//!
//! Independent of either protocol. Their codecs guarantee that names are tokens and values have no control
//! characters.

use super::{HeadError, HeadLimits, host_field, request_line, request_rules, response_rules};
use crate::fields::{Fields, KnownField};
use crate::head::{Method, RequestHead, ResponseHead};

/// Parses a request head into `head`, which is empty. Cookie fields split for compression are joined (RFC
/// 9113 §8.2.3).
pub fn request<'a>(
    method: &[u8],
    target: &[u8],
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    limits: &HeadLimits,
    head: &mut RequestHead,
) -> Result<(), HeadError> {
    begin(method, target, limits, head)?;
    receive(fields, limits, &mut head.fields)?;
    head.received_bytes = head.fields.block.len() as u32;
    request_rules(head, limits.paths)
}

/// Fills `head` with the request line and host of a rejected request, for access logs. Earlier content of
/// `head` is lost, and a target that is too long is truncated. If method or target are invalid, `head` stays
/// empty.
#[cold]
pub fn refused_request(
    method: &[u8],
    target: &[u8],
    host: &[u8],
    limits: &HeadLimits,
    head: &mut RequestHead,
) {
    head.clear();
    let target = &target[..target.len().min(limits.target_bytes_max)];
    if begin(method, target, limits, head).is_err() {
        return head.clear();
    }
    if target.starts_with(b"/") {
        head.target.origin_form = head.target.received;
    }
    head.fields.receive(KnownField::Host, b"Host", host);
    if let Ok(Some((authority, part))) = host_field(head) {
        head.set_authority(authority, part);
    }
}

/// Writes and parses the request line.
fn begin(method: &[u8], target: &[u8], limits: &HeadLimits, head: &mut RequestHead) -> Result<(), HeadError> {
    // Taken out, because `request_line` borrows the head.
    let mut block = std::mem::take(&mut head.fields.block);
    block.reserve(method.len() + target.len() + 12);
    block.extend_from_slice(method);
    block.push(b' ');
    block.extend_from_slice(target);
    block.extend_from_slice(b" HTTP/1.1\r\n");
    request_line(&block, head, limits)?;
    head.fields.block = block;
    Ok(())
}

/// Parses a response head into `head`, which is empty. `method` is the method of its request.
pub fn response<'a>(
    status: u16,
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    limits: &HeadLimits,
    method: Method,
    head: &mut ResponseHead,
) -> Result<(), HeadError> {
    head.status = status;
    receive(fields, limits, &mut head.fields)?;
    response_rules(head, method)
}

fn receive<'a>(
    received: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    limits: &HeadLimits,
    fields: &mut Fields,
) -> Result<(), HeadError> {
    let mut last = KnownField::Other;
    for (name, value) in received {
        let known = KnownField::of(name);
        if known == KnownField::Cookie && last == KnownField::Cookie {
            fields.join_last(b"; ", value);
            continue;
        }
        if fields.len() == limits.fields_max {
            return Err(HeadError::TooManyFields);
        }
        fields.receive(known, name, value);
        last = known;
    }
    fields.block.extend_from_slice(b"\r\n");
    if fields.block.len() > limits.head_bytes_max { Err(HeadError::TooLarge) } else { Ok(()) }
}
