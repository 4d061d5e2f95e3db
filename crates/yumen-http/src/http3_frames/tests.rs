use super::*;

const HEAD: &[u8] = b"\x01\x03abc";

/// The longest head or trailers in these tests, in bytes.
const SECTION_BYTES_MAX: u64 = 2000;

/// The bytes passed on, and the end of the stream.
fn passed<'a>(
    mut frames: Http3FrameFilter,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<u8>, Result<Http3StreamEnd, Http3FrameTooLong>) {
    let mut out = Vec::new();
    for piece in pieces {
        let mut input = Bytes::copy_from_slice(piece);
        while !input.is_empty() {
            match frames.pass(&mut input) {
                Ok(handed_on) => out.extend_from_slice(&handed_on),
                Err(why) => {
                    assert_eq!(frames.pass(&mut Bytes::from_static(b"x")), Err(why), "it stays so");
                    return (out, Err(why));
                }
            }
        }
    }
    let ended = frames.end();
    let again = if ended == Http3StreamEnd::Truncated { Http3StreamEnd::Truncated } else { clean() };
    assert_eq!(frames.end(), again);
    (out, Ok(ended))
}

/// Complete, byte by byte, and at every split.
#[track_caller]
fn check_with(
    frames: fn() -> Http3FrameFilter,
    input: &[&[u8]],
    handed_on: &[&[u8]],
    ended: &Result<Http3StreamEnd, Http3FrameTooLong>,
) {
    let (input, handed_on) = (input.concat(), handed_on.concat());
    let check = |pieces: Vec<&[u8]>| {
        let (out, end) = passed(frames(), pieces.iter().copied());
        let rest_bytes = if let Ok(Http3StreamEnd::Clean(rest)) = &end { &rest[..] } else { b"" };
        assert_eq!([&out[..], rest_bytes].concat(), handed_on, "{pieces:02x?}");
        assert_eq!(end.as_ref().err(), ended.as_ref().err(), "{pieces:02x?}");
        assert_eq!(
            matches!(end, Ok(Http3StreamEnd::Truncated)),
            matches!(ended, Ok(Http3StreamEnd::Truncated)),
            "{pieces:02x?}"
        );
    };
    check(vec![&input]);
    check(input.chunks(1).collect());
    for at in 0..=input.len() {
        check(vec![&input[..at], &input[at..]]);
    }
}

#[track_caller]
fn check(input: &[&[u8]], handed_on: &[&[u8]], ended: &Http3StreamEnd) {
    let ended = match ended {
        Http3StreamEnd::Clean(rest) => Http3StreamEnd::Clean(rest.clone()),
        Http3StreamEnd::Truncated => Http3StreamEnd::Truncated,
    };
    check_with(of_request, input, handed_on, &Ok(ended));
}

fn of_request() -> Http3FrameFilter {
    Http3FrameFilter::of_request(SECTION_BYTES_MAX)
}

fn clean() -> Http3StreamEnd {
    Http3StreamEnd::Clean(Bytes::new())
}

#[test]
fn frames_are_handed_on_as_they_came() {
    check(&[], &[], &clean());
    let all: &[&[u8]] =
        &[HEAD, b"\x00\x05hello", b"\x40\x00\x40\x02ab", b"\x04\x01s", b"\x0d\x00", b"\x01\x01t"];
    check(all, all, &clean());
    let long: &[&[u8]] = &[HEAD, b"\xc0\0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\x01x"];
    check(long, long, &clean());
}

#[test]
fn a_frame_of_no_data_is_left_out_of_a_body() {
    let empty: &[u8] = b"\x00\x00";
    check(&[HEAD, empty], &[HEAD], &clean());
    check(&[HEAD, empty, empty, b"\x00\x01a", empty, b"\x00\x01b"], &[HEAD, b"\x00\x01a\x00\x01b"], &clean());
    check(&[HEAD, b"\x40\x00\x80\0\0\0", b"\x00\x01a"], &[HEAD, b"\x00\x01a"], &clean());
}

#[test]
fn a_frame_of_no_data_out_of_place_is_for_the_library_to_refuse() {
    let first: &[&[u8]] = &[b"\x00\x00", HEAD];
    check(first, first, &clean());
    let last: &[&[u8]] = &[HEAD, b"\x00\x01a", HEAD, b"\x00\x00"];
    check(last, last, &clean());
}

#[test]
fn an_end_within_a_frame_of_data_is_a_cut() {
    check(&[HEAD, b"\x00\x0ahello"], &[HEAD, b"\x00\x0ahello"], &Http3StreamEnd::Truncated);
    check(&[HEAD, b"\x00\x0a"], &[HEAD, b"\x00\x0a"], &Http3StreamEnd::Truncated);
}

#[test]
fn an_end_within_another_frame_or_a_header_is_for_the_library_to_refuse() {
    check(&[b"\x01\x03ab"], &[b"\x01\x03ab"], &clean());
    check(&[HEAD, b"\x00"], &[HEAD, b"\x00"], &clean());
    check(&[HEAD, b"\x00\x80\0"], &[HEAD, b"\x00\x80\0"], &clean());
    check(&[HEAD, b"\x21\x03ab"], &[HEAD, b"\x21\x03"], &clean());
}

#[test]
fn frames_of_unknown_types_are_left_out_however_long_they_are() {
    let grease: &[u8] = b"\x21\x03abc";
    let priority: &[u8] = b"\x80\x0f\x07\0\x04\0u=1";
    let web_transport: &[u8] = b"\x40\x41\0";
    let data: &[u8] = b"\x00\x01a";
    check(&[grease, HEAD, b"\x21\0", data, priority, data, web_transport], &[HEAD, data, data], &clean());
    let mut frames = of_request();
    let mut input = Bytes::from_static(b"\x01\x01h\x21\xc0\0\x01\0\0\0\0\0");
    assert_eq!(frames.pass(&mut input).unwrap(), &b"\x01\x01h"[..]);
    for _ in 0..1000 {
        assert_eq!(frames.pass(&mut input).unwrap(), Bytes::new());
        assert_eq!(input, Bytes::new());
        input = Bytes::from(vec![0; 10_000]);
    }
}

#[test]
fn a_head_or_trailers_that_are_too_long_are_refused_before_they_come() {
    // Of 2000 and of 2001 bytes.
    let (longest, longer): (&[u8], &[u8]) = (b"\x01\x47\xd0", b"\x01\x47\xd1");
    let payload = [b'x'; SECTION_BYTES_MAX as usize];
    check(&[longest, &payload, HEAD], &[longest, &payload, HEAD], &clean());
    for (before, handed_on) in [(b"".as_slice(), b"".as_slice()), (HEAD, HEAD), (b"\x21\x01x", b"")] {
        for tail in [b"".as_slice(), b"x"] {
            let refused = Err(Http3FrameTooLong::Section);
            // A longer length may be encoded with more bytes than necessary.
            for longer in [longer, b"\x40\x01\xc0\0\x01\0\0\0\0\0"] {
                check_with(of_request, &[before, longer, tail], &[handed_on], &refused);
            }
        }
    }
}

#[test]
fn other_frames_are_short() {
    let (longest, longer): (&[u8], &[u8]) = (b"\x44\x00", b"\x44\x01");
    for kind in [b"\x02", b"\x03", b"\x04", b"\x05", b"\x06", b"\x07", b"\x08", b"\x09", b"\x0d"] {
        let whole = [&kind[..], longest, &[0; 1024]].concat();
        for (frames, before) in
            [(of_request as fn() -> Http3FrameFilter, HEAD), (Http3FrameFilter::one_way, b"\x00")]
        {
            assert_eq!(passed(frames(), [before, &whole]), ([before, &whole].concat(), Ok(clean())));
            check_with(frames, &[before, kind, longer], &[before], &Err(Http3FrameTooLong::Frame));
        }
    }
    // At positions without DATA, the library has to see the frame.
    check_with(Http3FrameFilter::one_way, &[b"\x00", HEAD], &[b"\x00", HEAD], &Ok(clean()));
    check_with(Http3FrameFilter::one_way, &[b"\x00\x01", longer], &[b"\x00"], &Err(Http3FrameTooLong::Frame));
}

#[test]
fn of_the_streams_that_go_one_way_the_control_stream_has_frames() {
    let (settings, grease): (&[u8], &[u8]) = (b"\x04\x02\x06\x00", b"\x21\x02gg");
    for control in [b"\x00".as_slice(), b"\x40\x00", b"\xc0\0\0\0\0\0\0\0"] {
        check_with(
            Http3FrameFilter::one_way,
            &[control, grease, settings, grease, b"\x07\x01\0"],
            &[control, settings, b"\x07\x01\0"],
            &Ok(clean()),
        );
    }
    let bytes = [&b"\x04\xff\xff\xff\xff\xff\xff\xff\xff"[..], &[7; 2000]].concat();
    for other in [b"\x02".as_slice(), b"\x03", b"\x01", b"\x40\x54", b"\x21"] {
        let all: &[&[u8]] = &[other, &bytes];
        check_with(Http3FrameFilter::one_way, all, all, &Ok(clean()));
    }
    check_with(Http3FrameFilter::one_way, &[b"\x40"], &[b"\x40"], &Ok(clean()));
}

#[test]
fn a_frame_that_is_held_back_comes_whole() {
    let mut frames = of_request();
    let mut handed_on = |bytes: &'static [u8]| {
        let mut input = Bytes::from_static(bytes);
        let mut out = Vec::new();
        while !input.is_empty() {
            let passed = frames.pass(&mut input).unwrap();
            out.extend((!passed.is_empty()).then_some(passed));
        }
        out
    };
    assert_eq!(handed_on(b"\x01\x05ab"), Vec::<Bytes>::new());
    assert_eq!(handed_on(b"c"), Vec::<Bytes>::new());
    assert_eq!(handed_on(b"de\x00\x01b\x01\x02t"), [&b"\x01\x05abcde"[..], b"\x00\x01b"]);
    assert_eq!(handed_on(b"t"), [&b"\x01\x02tt"[..]]);
}
