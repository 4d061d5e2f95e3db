use super::{Buffers, Inbox};

/// An inbox with the given content.
fn holding(bytes: &[u8], buffers: &Buffers) -> Inbox {
    let mut inbox = Inbox::default();
    inbox.room(buffers)[..bytes.len()].copy_from_slice(bytes);
    inbox.filled(bytes.len());
    inbox
}

#[test]
fn consumed_bytes_can_be_read_again_while_buffered() {
    let buffers = Buffers::default();
    for ahead in [0, 3] {
        let mut inbox = holding(b"abcdef", &buffers);
        inbox.consume(ahead);
        let mark = inbox.mark();
        inbox.consume(2);
        assert_ne!(inbox.mark(), mark);
        assert!(inbox.rewind(mark));
        assert_eq!(inbox.bytes(), &b"abcdef"[ahead..]);
    }
}

#[test]
fn returned_bytes_are_discarded() {
    let buffers = Buffers::default();
    for ahead in [0, 3] {
        let mut inbox = holding(b"abcdef", &buffers);
        inbox.consume(ahead);
        let mark = inbox.mark();
        inbox.consume(6 - ahead);
        inbox.release(&buffers);
        assert_ne!(inbox.mark(), mark, "{ahead}");
        assert!(!inbox.rewind(mark), "{ahead}");
    }
}

#[test]
fn truncated_bytes_are_replaced_by_later_ones() {
    let buffers = Buffers::default();
    for (count, rest) in [(9, &b"cdef"[..]), (4, b"cdef"), (1, b"c"), (0, b"")] {
        let mut inbox = holding(b"abcdef", &buffers);
        inbox.consume(2);
        inbox.truncate(count);
        assert_eq!(inbox.bytes(), rest, "{count}");
        inbox.room(&buffers)[0] = b'!';
        inbox.filled(1);
        assert_eq!(inbox.bytes(), [rest, b"!"].concat(), "{count}");
    }
}
