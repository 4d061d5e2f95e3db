use super::super::frames::HEAD_BYTES;
use super::*;

const SETTINGS: u8 = 4;

fn frame(kind: u8, flags: u8, payload: usize) -> Vec<u8> {
    let length = (payload as u32).to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags, 0, 0, 0, 1];
    bytes.resize(HEAD_BYTES + payload, b'x');
    bytes
}

/// Feeds the frames repeatedly, in chunks of any size, to a budget of 100; returns the number of rounds until
/// it is exhausted, if ever.
fn lasts(frames: &[Vec<u8>]) -> Option<usize> {
    let bytes = frames.concat();
    let counts = [1, 7, bytes.len()].map(|piece| {
        let mut patience = FrameBudget::new(100, 0, 0);
        (1..=1000).find(|_| {
            bytes.chunks(piece).for_each(|chunk| patience.received(chunk, 0));
            patience.is_over()
        })
    });
    assert!(counts.iter().all(|count| *count == counts[0]), "pieces do not matter: {counts:?}");
    counts[0]
}

/// Name, frames, and expected result of `lasts`.
type Row<'a> = (&'a str, &'a [Vec<u8>], Option<usize>);

#[test]
fn floods_end_it_and_traffic_does_not() {
    let request = || frame(HEADERS, 5, 30);
    let update = || frame(WINDOW_UPDATE, 0, 4);
    let table: &[Row<'_>] = &[
        ("pings", &[frame(PING, 0, 8)], Some(100)),
        ("settings", &[frame(SETTINGS, 0, 60)], Some(100)),
        ("empty data", &[frame(DATA, 0, 0)], Some(100)),
        ("unknown frames", &[frame(0xfa, 0, 3)], Some(100)),
        ("window updates alone", &[frame(8, 0, 4)], Some(100)),
        ("requests taken back", &[request(), frame(RESET, 0, 4)], Some(25)),
        ("requests", &[request()], None),
        ("requests with window updates", &[request(), frame(8, 0, 4), frame(8, 0, 4)], None),
        ("one of four taken back", &[request(), request(), request(), frame(RESET, 0, 4)], None),
        (
            "messages, answered as gRPC does",
            &[frame(DATA, 0, 7), update(), update(), frame(PING, 0, 8)],
            None,
        ),
        ("more than that", &[frame(DATA, 0, 7), update(), update(), update(), frame(PING, 0, 8)], Some(105)),
        ("crumbs of data", &[frame(DATA, 0, 4), frame(PING, 0, 8)], Some(103)),
        ("padding", &[frame(DATA, PADDED, 7), frame(PING, 0, 8)], Some(105)),
        ("data and settings", &[frame(DATA, 0, 7), frame(SETTINGS, 0, 6)], Some(105)),
        ("data and resets", &[frame(DATA, 0, 7), request(), frame(RESET, 0, 4)], Some(25)),
        ("a body, acknowledged", &[frame(DATA, 0, 1000), frame(PING, 0, 8)], None),
        ("the end of a body", &[frame(DATA, END_STREAM, 0)], None),
    ];
    for (name, frames, expected) in table {
        assert_eq!(lasts(frames), *expected, "{name}");
    }
}

#[test]
fn time_and_what_is_sent_give_it_back_but_not_once_it_is_over() {
    let mut patience = FrameBudget::new(10, 0, 0);
    let pings = |patience: &mut FrameBudget, count: usize, now_ms| {
        (0..count).for_each(|_| patience.received(&frame(PING, 0, 8), now_ms));
    };
    pings(&mut patience, 9, 0);
    pings(&mut patience, 9, 1000);
    assert!(!patience.is_over(), "a second gave all of it back");
    send_all(&mut patience, &frame(SETTINGS, 0, 100 * 128));
    pings(&mut patience, 9, 1000);
    assert!(!patience.is_over(), "what was sent gave all of it back");
    pings(&mut patience, 1, 1000);
    assert!(patience.is_over());
    pings(&mut patience, 1, 100_000);
    assert!(patience.is_over(), "it stays over");
}

#[track_caller]
fn send_all(patience: &mut FrameBudget, bytes: &[u8]) {
    assert_eq!(patience.send(bytes), bytes.len());
}

/// Checks the rounds until a budget of 100 is exhausted, if `sent` goes to the peer in chunks and `received`
/// arrives.
#[track_caller]
fn check_answered(new: fn() -> FrameBudget, sent: &[u8], received: &[u8], expected: Option<usize>) {
    for piece in [1, 7, sent.len()] {
        let mut patience = new();
        let rounds = (1..=2000).find(|_| {
            sent.chunks(piece).for_each(|chunk| send_all(&mut patience, chunk));
            patience.received(received, 0);
            patience.is_over()
        });
        assert_eq!(rounds, expected, "{sent:02x?}, {received:02x?}, in pieces of {piece}");
    }
}

#[test]
fn sent_data_replenishes_the_frame_budget() {
    let client = || FrameBudget::new(100, 0, 0);
    let endpoint = || {
        let mut patience = FrameBudget::with_endpoint(100, 24, 0);
        send_all(&mut patience, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        patience
    };
    let (request, message) = (frame(HEADERS, END_HEADERS, 0), frame(DATA, 0, 7));
    let (ping, update, reset) = (frame(PING, 0, 8), frame(WINDOW_UPDATE, 0, 4), frame(RESET, 0, 4));
    let answered = [&update[..], &update, &ping].concat();
    check_answered(client, &message, &answered, None);
    check_answered(endpoint, &message, &answered, None);
    // A window that is opened byte by byte is a flood.
    check_answered(client, &frame(DATA, 0, 1), &update, Some(108));
    // An endpoint may reset each request, a client may not.
    check_answered(endpoint, &request, &reset, None);
    check_answered(endpoint, &request, &reset.repeat(2), Some(16));
    check_answered(endpoint, &message, &reset, Some(17));
    check_answered(client, &request, &reset, Some(17));
}

#[test]
fn frame_budget_is_bounded() {
    let mut patience = FrameBudget::new(100, 0, 0);
    (0..1000).for_each(|_| send_all(&mut patience, &frame(DATA, 0, 100)));
    let lasts = (1..=1000).find(|_| {
        patience.received(&frame(PING, 0, 8), 0);
        patience.is_over()
    });
    assert_eq!(lasts, Some(200));
}

/// Checks the sizes of the writes for the given frames, once the first `begun` bytes are sent.
#[track_caller]
fn check_sent(frames: &[&[u8]], begun: usize, expected: &[usize]) {
    let bytes = frames.concat();
    let mut patience = FrameBudget::new(100, 0, 0);
    send_all(&mut patience, &bytes[..begun]);
    let (mut left, mut sent) = (&bytes[begun..], Vec::new());
    while !left.is_empty() {
        let count = patience.send(left);
        sent.push(count);
        left = &left[count..];
    }
    assert_eq!(sent, expected, "{bytes:02x?} from {begun}");
}

#[test]
fn a_reset_is_not_sent_together_with_what_stands_before_it() {
    let (head, end) = (&frame(HEADERS, END_HEADERS, 11)[..], &frame(DATA, END_STREAM, 91)[..]);
    let (reset, goodbye) = (&frame(RESET, 0, 4)[..], &frame(GOAWAY, 0, 8)[..]);
    check_sent(&[head, end], 0, &[120]);
    check_sent(&[head, end, reset], 0, &[120, 13]);
    // Resets are written together, so that refusing many streams costs few writes.
    check_sent(&[end, reset, reset, goodbye, head], 0, &[100, 63]);
    check_sent(&[reset, end, reset, end], 0, &[113, 113]);
    check_sent(&[end, goodbye], 4, &[96, 17]);
    check_sent(&[end, goodbye], 50, &[50, 17]);
    check_sent(&[end, reset], 102, &[11]);
}

#[test]
fn the_preface_is_no_frame() {
    let mut patience = FrameBudget::new(1, 24, 0);
    patience.received(&[0; 23], 0);
    patience.received(&[0; 1], 0);
    assert!(!patience.is_over());
    patience.received(&frame(PING, 0, 8), 0);
    assert!(patience.is_over());
}

/// Checks since when input is incomplete, if the chunks arrive one per second.
#[track_caller]
fn check_unfinished(pieces: &[&[u8]], expected: Option<u64>) {
    let mut patience = FrameBudget::new(100, 0, 0);
    (0u64..).zip(pieces).for_each(|(at, piece)| patience.received(piece, at * 1000));
    assert_eq!(patience.unfinished_since_ms(), expected, "{pieces:02x?}");
}

#[test]
fn a_head_is_unfinished_from_its_first_byte_to_its_last() {
    let whole = frame(HEADERS, END_HEADERS, 30);
    let (begun, more, last) =
        (frame(HEADERS, 0, 30), frame(CONTINUATION, 0, 1), frame(CONTINUATION, END_HEADERS, 1));
    check_unfinished(&[&whole], None);
    check_unfinished(&[b"", &whole[..3]], Some(1000));
    check_unfinished(&[b"", &whole[..3], &whole[3..20], &whole[20..38]], Some(1000));
    check_unfinished(&[b"", &whole[..3], &whole[3..]], None);
    check_unfinished(&[b"", &begun], Some(1000));
    check_unfinished(&[b"", &begun, &more, &frame(CONTINUATION, 0, 0), &more], Some(1000));
    check_unfinished(&[b"", &begun, &more, &last], None);
    check_unfinished(&[b"", &begun, &last[..9]], Some(1000));
    // A new incomplete frame restarts the time.
    check_unfinished(&[b"", &whole[..3], &[&whole[3..], &begun].concat()], Some(2000));
    // An incomplete PING counts; incomplete DATA belongs to a body.
    check_unfinished(&[b"", &frame(PING, 0, 8)[..12]], Some(1000));
    check_unfinished(&[b"", &frame(DATA, 0, 1000)[..700]], None);
    check_unfinished(&[b"", &frame(DATA, 0, 1000)[..5], &frame(DATA, 0, 1000)[5..700]], None);
    check_unfinished(&[&frame(DATA, 0, 1000)[..700], &frame(DATA, 0, 1000)[700..]], None);
}

#[test]
fn paused_reading_does_not_age_unfinished_frames() {
    let mut patience = FrameBudget::new(100, 0, 0);
    patience.wait_anew(500);
    assert_eq!(patience.unfinished_since_ms(), None);
    patience.received(&frame(HEADERS, 0, 30), 1000);
    patience.wait_anew(5000);
    assert_eq!(patience.unfinished_since_ms(), Some(5000));
}
