use super::*;

fn text(text: &str) -> RedisReply {
    RedisReply::Text(text.as_bytes().to_vec())
}

/// Expects the reply from all bytes and from no prefix of them.
fn check(bytes: &str, expected: Result<RedisReply, &str>) {
    let expected = expected.map_err(str::to_owned);
    for cut in 0..bytes.len() {
        assert_eq!(reply(&bytes.as_bytes()[..cut]), Ok(None), "{bytes:?} up to {cut}");
    }
    let more = format!("{bytes}:7\r\n");
    assert_eq!(reply(more.as_bytes()), Ok(Some((expected, bytes.len()))), "{bytes:?}");
}

#[test]
fn replies_are_read_when_they_are_complete() {
    check("+OK\r\n", Ok(text("OK")));
    check("-ERR no such thing\r\n", Err("ERR no such thing"));
    check(":-12\r\n", Ok(RedisReply::Integer(-12)));
    check("$5\r\na\r\nbc\r\n", Ok(text("a\r\nbc")));
    check("$0\r\n\r\n", Ok(text("")));
    check("$-1\r\n", Ok(RedisReply::Nil));
    check("*-1\r\n", Ok(RedisReply::Nil));
    check("*0\r\n", Ok(RedisReply::Array(Vec::new())));
    let inner = RedisReply::Array(vec![text("x"), RedisReply::Nil]);
    check("*2\r\n:1\r\n*2\r\n$1\r\nx\r\n$-1\r\n", Ok(RedisReply::Array(vec![RedisReply::Integer(1), inner])));
    check("*2\r\n:1\r\n-MOVED 1 a:2\r\n", Err("MOVED 1 a:2"));
}

#[test]
fn invalid_reply_is_an_error_at_once() {
    let deep = "*1\r\n".repeat(DEPTH_MAX + 1);
    let bad =
        ["HTTP/1.1 400\r\n", "\r\n", ":x\r\n", "$-2\r\n", "$9999999\r\n", "$1\r\nxyz\r\n", "+a\rb", &deep];
    for bytes in bad {
        assert_eq!(reply(bytes.as_bytes()), Err(MalformedReply), "{bytes:?}");
    }
    assert_eq!(reply(&vec![b'+'; REPLY_BYTES_MAX + 1]), Err(MalformedReply), "an endless line");
}

#[test]
fn commands_carry_lengths() {
    let mut out = Vec::new();
    text_command(&mut out, &["SET", "a b", ""]);
    assert_eq!(out, b"*3\r\n$3\r\nSET\r\n$3\r\na b\r\n$0\r\n\r\n");
}

proptest::proptest! {
    /// For any input: no panic, no read beyond the end, and no result for a prefix that contradicts that of
    /// the whole.
    #[test]
    fn any_bytes_are_read_or_refused(bytes in "([-+:$*]|[0-9]{1,3}|\r\n|[a-z ]){0,40}") {
        let bytes = bytes.as_bytes();
        let whole = reply(bytes);
        if let Ok(Some((_, length))) = &whole {
            assert!(*length <= bytes.len());
        }
        for cut in 0..bytes.len() {
            match reply(&bytes[..cut]) {
                Ok(None) => {}
                told => assert_eq!(told, whole, "{cut}"),
            }
        }
    }
}
