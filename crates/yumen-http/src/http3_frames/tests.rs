use super::*;

const HEAD: &[u8] = b"\x01\x03abc";

/// What is handed on of the pieces, and how the stream ended.
fn passed<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> (Vec<u8>, Ended) {
    let mut frames = Frames::default();
    let mut out = Vec::new();
    for piece in pieces {
        let mut came = Bytes::copy_from_slice(piece);
        while !came.is_empty() {
            out.extend_from_slice(&frames.pass(&mut came));
        }
    }
    let ended = frames.end();
    let again = if ended == Ended::Cut { Ended::Cut } else { told() };
    assert_eq!(frames.end(), again);
    (out, ended)
}

/// Whole, byte by byte and at every split.
#[track_caller]
fn check(came: &[&[u8]], handed_on: &[&[u8]], ended: &Ended) {
    let (came, handed_on) = (came.concat(), handed_on.concat());
    let check = |pieces: Vec<&[u8]>| {
        let (out, end) = passed(pieces.iter().copied());
        let told = if let Ended::Told(rest) = &end { &rest[..] } else { b"" };
        assert_eq!([&out[..], told].concat(), handed_on, "{pieces:02x?}");
        assert_eq!(matches!(end, Ended::Cut), matches!(ended, Ended::Cut), "{pieces:02x?}");
    };
    check(vec![&came]);
    check(came.chunks(1).collect());
    for at in 0..=came.len() {
        check(vec![&came[..at], &came[at..]]);
    }
}

fn told() -> Ended {
    Ended::Told(Bytes::new())
}

#[test]
fn frames_are_handed_on_as_they_came() {
    check(&[], &[], &told());
    let all: &[&[u8]] =
        &[HEAD, b"\x00\x05hello", b"\x40\x00\x40\x02ab", b"\x21\x01g", b"\x21\x00", b"\x01\x01t"];
    check(all, all, &told());
    let long: &[&[u8]] = &[HEAD, b"\xc0\0\0\0\0\0\0\0\xc0\0\0\0\0\0\0\x01x"];
    check(long, long, &told());
}

#[test]
fn a_frame_of_no_data_is_left_out_of_a_body() {
    let empty: &[u8] = b"\x00\x00";
    check(&[HEAD, empty], &[HEAD], &told());
    check(&[HEAD, empty, empty, b"\x00\x01a", empty, b"\x00\x01b"], &[HEAD, b"\x00\x01a\x00\x01b"], &told());
    check(&[HEAD, b"\x40\x00\x80\0\0\0", b"\x00\x01a"], &[HEAD, b"\x00\x01a"], &told());
}

#[test]
fn a_frame_of_no_data_out_of_place_is_for_the_library_to_refuse() {
    let first: &[&[u8]] = &[b"\x00\x00", HEAD];
    check(first, first, &told());
    let last: &[&[u8]] = &[HEAD, b"\x00\x01a", HEAD, b"\x00\x00"];
    check(last, last, &told());
}

#[test]
fn an_end_within_a_frame_of_data_is_a_cut() {
    check(&[HEAD, b"\x00\x0ahello"], &[HEAD, b"\x00\x0ahello"], &Ended::Cut);
    check(&[HEAD, b"\x00\x0a"], &[HEAD, b"\x00\x0a"], &Ended::Cut);
}

#[test]
fn an_end_within_another_frame_or_a_header_is_for_the_library_to_refuse() {
    check(&[b"\x01\x03ab"], &[b"\x01\x03ab"], &told());
    check(&[HEAD, b"\x00"], &[HEAD, b"\x00"], &told());
    check(&[HEAD, b"\x00\x80\0"], &[HEAD, b"\x00\x80\0"], &told());
}
