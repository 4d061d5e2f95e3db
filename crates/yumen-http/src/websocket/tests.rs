use super::{WebSocketFrameTracker, close_frame};

/// A frame with `payload` payload bytes, whose extended length takes `length` bytes.
fn frame(payload: usize, length: u8, is_masked: bool) -> Vec<u8> {
    let mut bytes = vec![0x82];
    let mask = if is_masked { 0x80 } else { 0 };
    match length {
        0 => bytes.push(mask | payload as u8),
        2 => {
            bytes.push(mask | 126);
            bytes.extend_from_slice(&(payload as u16).to_be_bytes());
        }
        _ => {
            bytes.push(mask | 127);
            bytes.extend_from_slice(&(payload as u64).to_be_bytes());
        }
    }
    bytes.extend(std::iter::repeat_n(0xff, payload + if is_masked { 4 } else { 0 }));
    bytes
}

#[test]
fn ends_of_frames_are_found_whatever_the_pieces() {
    let frames: Vec<Vec<u8>> = [(0, 0), (5, 0), (125, 0), (126, 2), (3, 2), (70_000, 8), (0, 8)]
        .into_iter()
        .flat_map(|(payload, length)| [false, true].map(|is_masked| frame(payload, length, is_masked)))
        .collect();
    let all = frames.concat();
    let ends: Vec<usize> = frames
        .iter()
        .scan(0, |end, frame| {
            *end += frame.len();
            Some(*end)
        })
        .collect();
    for size in [1, 2, 3, 7, 100, 65_536, all.len()] {
        let (mut tracked, mut at) = (WebSocketFrameTracker::default(), 0);
        for piece in all.chunks(size) {
            tracked.pass(piece);
            at += piece.len();
            assert_eq!(tracked.is_between(), ends.contains(&at), "after {at} in pieces of {size}");
        }
    }
    let (mut tracked, mut at, mut found) = (WebSocketFrameTracker::default(), 0, Vec::new());
    assert!(tracked.is_between());
    while at < all.len() {
        at += tracked.pass_frame(&all[at..]);
        found.push(at);
    }
    assert_eq!(found, ends);
}

#[test]
fn a_closing_frame_is_a_frame() {
    assert_eq!(close_frame(1001, None), [0x88, 2, 0x03, 0xe9]);
    assert_eq!(close_frame(1001, Some([1, 2, 3, 4])), [0x88, 0x82, 1, 2, 3, 4, 0x02, 0xeb]);
    for mask in [None, Some([9; 4])] {
        let bytes = close_frame(1000, mask);
        assert_eq!(WebSocketFrameTracker::default().pass_frame(&bytes), bytes.len());
    }
}
