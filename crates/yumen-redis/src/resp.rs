//! The Redis protocol, version 2 (RESP2): encoder of commands, decoder of replies. Independent of sockets.

use yumen_plugin::background::RedisReply;

/// The longest reply, in bytes. Scripts of plugins return a few numbers, and the map of a cluster has a few
/// kilobytes.
const REPLY_BYTES_MAX: usize = 1 << 20;
/// The deepest nesting of arrays.
const DEPTH_MAX: usize = 8;

/// A reply, or the text of an error reply.
pub(crate) type ReplyResult = Result<RedisReply, String>;

/// Appends a command.
pub(crate) fn command<'a>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'a [u8]>) {
    let mut digits = itoa::Buffer::new();
    let mut number = |out: &mut Vec<u8>, sign: u8, number: usize| {
        out.push(sign);
        out.extend_from_slice(digits.format(number).as_bytes());
        out.extend_from_slice(b"\r\n");
    };
    number(out, b'*', words.len());
    for word in words {
        number(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Appends a command with words that are text.
pub(crate) fn text_command(out: &mut Vec<u8>, words: &[&str]) {
    command(out, words.iter().map(|word| word.as_bytes()));
}

/// The bytes are not a reply, so the connection is unusable.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MalformedReply;

/// Decodes the first reply; returns it with its length in bytes, or `None` if it is incomplete.
pub(crate) fn reply(bytes: &[u8]) -> Result<Option<(ReplyResult, usize)>, MalformedReply> {
    let mut rest = bytes;
    match parse(&mut rest, 0) {
        Ok(reply) => Ok(Some((reply, bytes.len() - rest.len()))),
        // Checked on incomplete replies only: a complete one is decoded already.
        Err(ReplyParseStop::Incomplete) if bytes.len() <= REPLY_BYTES_MAX => Ok(None),
        Err(ReplyParseStop::Incomplete | ReplyParseStop::Broken) => Err(MalformedReply),
    }
}

enum ReplyParseStop {
    Incomplete,
    Broken,
}

fn parse(rest: &mut &[u8], depth: usize) -> Result<ReplyResult, ReplyParseStop> {
    let line = line(rest)?;
    let (kind, text) = line.split_first().ok_or(ReplyParseStop::Broken)?;
    Ok(match kind {
        b'+' => Ok(RedisReply::Text(text.to_vec())),
        b'-' => Err(String::from_utf8_lossy(text).into_owned()),
        b':' => Ok(RedisReply::Integer(number(text)?)),
        b'$' => match length(text)? {
            None => Ok(RedisReply::Nil),
            Some(length) => Ok(RedisReply::Text(bulk(rest, length)?)),
        },
        b'*' => match length(text)? {
            None => Ok(RedisReply::Nil),
            // Bounds the recursion, whose depth the peer would choose otherwise.
            Some(_) if depth >= DEPTH_MAX => return Err(ReplyParseStop::Broken),
            Some(length) => array(rest, length, depth)?,
        },
        _ => return Err(ReplyParseStop::Broken),
    })
}

fn array(rest: &mut &[u8], length: usize, depth: usize) -> Result<ReplyResult, ReplyParseStop> {
    // The announced length is untrusted, so it must not size an allocation.
    let mut items = Vec::with_capacity(length.min(64));
    let mut error = None;
    for _ in 0..length {
        match parse(rest, depth + 1)? {
            Ok(item) => items.push(item),
            // The rest is parsed nevertheless, to find the end of the reply.
            Err(reply) => error = Some(reply),
        }
    }
    // An error inside an array makes the whole reply an error.
    Ok(match error {
        Some(reply) => Err(reply),
        None => Ok(RedisReply::Array(items)),
    })
}

fn line<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], ReplyParseStop> {
    let end = rest.iter().position(|byte| *byte == b'\r').ok_or(ReplyParseStop::Incomplete)?;
    match rest.get(end + 1) {
        None => Err(ReplyParseStop::Incomplete),
        Some(b'\n') => {
            let line = &rest[..end];
            *rest = &rest[end + 2..];
            Ok(line)
        }
        Some(_) => Err(ReplyParseStop::Broken),
    }
}

fn bulk(rest: &mut &[u8], length: usize) -> Result<Vec<u8>, ReplyParseStop> {
    // `length` has been bounded, so the sum cannot overflow.
    let whole = rest.get(..length + 2).ok_or(ReplyParseStop::Incomplete)?;
    let (text, end) = whole.split_at(length);
    if end != b"\r\n" {
        return Err(ReplyParseStop::Broken);
    }
    let text = text.to_vec();
    *rest = &rest[length + 2..];
    Ok(text)
}

fn number(text: &[u8]) -> Result<i64, ReplyParseStop> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(ReplyParseStop::Broken)
}

fn length(text: &[u8]) -> Result<Option<usize>, ReplyParseStop> {
    match number(text)? {
        // The null reply of RESP2.
        -1 => Ok(None),
        length if (0..=REPLY_BYTES_MAX as i64).contains(&length) => Ok(Some(length as usize)),
        _ => Err(ReplyParseStop::Broken),
    }
}

#[cfg(test)]
mod tests;
