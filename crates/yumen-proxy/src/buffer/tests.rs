use super::{Buffers, Inbox};

/// An inbox into which these bytes came.
fn holding(bytes: &[u8], buffers: &Buffers) -> Inbox {
    let mut inbox = Inbox::default();
    inbox.room(buffers)[..bytes.len()].copy_from_slice(bytes);
    inbox.filled(bytes.len());
    inbox
}

#[test]
fn what_was_taken_can_be_read_again_as_long_as_it_is_there() {
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
fn what_was_taken_and_given_back_is_gone() {
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
