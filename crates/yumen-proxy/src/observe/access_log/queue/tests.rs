use std::io::{self, Write};

use super::{LINE_BYTES, queue};

#[test]
fn as_many_lines_wait_as_may_however_they_are_batched() {
    for lines_a_batch in [1, 7, 100] {
        let (queue, writer) = queue(700);
        let batches = 700 / lines_a_batch;
        let batch = "x\n".repeat(lines_a_batch as usize).into_bytes();
        for _ in 0..batches {
            assert_eq!(queue.offer(batch.clone(), lines_a_batch), 0);
        }
        assert_eq!(queue.offer(batch.clone(), lines_a_batch), lines_a_batch, "one batch too many");
        assert_eq!(writer.backlog().lines(), 700);
    }
}

#[test]
fn a_long_line_takes_the_room_of_several_and_one_that_waits_alone_any_room() {
    let (queue, writer) = queue(8);
    assert_eq!(queue.offer(vec![b'x'; 7 * LINE_BYTES as usize], 1), 0);
    assert_eq!(queue.offer(vec![b'x'; 2 * LINE_BYTES as usize], 1), 1);
    assert_eq!(queue.offer(b"x\n".to_vec(), 1), 0);
    assert_eq!(writer.backlog().lines(), 2);
    drop(queue);
    let (queue, _writer) = super::queue(1);
    assert_eq!(queue.offer(b"x\n".repeat(50), 50), 0);
    assert_eq!(queue.offer(b"x\n".to_vec(), 1), 1);
}

/// A disk with room for the given bytes at each write; `None` accepts a whole write.
struct Disk<'a> {
    bytes: &'a mut Vec<u8>,
    room: Vec<Option<usize>>,
}

impl Write for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = if self.room.is_empty() { None } else { self.room.remove(0) };
        match room {
            Some(0) => Err(io::ErrorKind::StorageFull.into()),
            room => {
                let bytes = &bytes[..bytes.len().min(room.unwrap_or(usize::MAX))];
                self.bytes.extend_from_slice(bytes);
                Ok(bytes.len())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes three batches of three lines to a disk; checks its content and the number of lost lines.
fn check(room: &[Option<usize>], expected: &str, expected_lost: u64) {
    let (queue, writer) = queue(100);
    for batch in ["a1\na2\na3\n", "b1\nb2\nb3\n", "c1\nc2\nc3\n"] {
        assert_eq!(queue.offer(batch.into(), 3), 0);
    }
    let (backlog, lines) = (writer.backlog(), queue.clone());
    drop(queue);
    let mut bytes = Vec::new();
    std::thread::scope(|scope| {
        let disk = Disk { bytes: &mut bytes, room: room.to_vec() };
        let running = scope.spawn(|| writer.run(disk));
        while backlog.lines() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(lines.take_lost_lines(), expected_lost, "{room:?}");
        assert_eq!(lines.take_lost_lines(), 0, "told once");
        drop(lines);
        running.join().unwrap();
    });
    assert_eq!(String::from_utf8(bytes).unwrap(), expected, "{room:?}");
}

#[test]
fn lines_that_a_full_disk_does_not_take_are_counted_and_what_follows_begins_a_line() {
    check(&[], "a1\na2\na3\nb1\nb2\nb3\nc1\nc2\nc3\n", 0);
    // A short write alone is not an error.
    check(&[Some(4)], "a1\na2\na3\nb1\nb2\nb3\nc1\nc2\nc3\n", 0);
    check(&[Some(4), Some(0)], "a1\na\nb1\nb2\nb3\nc1\nc2\nc3\n", 2);
    check(&[Some(3), Some(0)], "a1\nb1\nb2\nb3\nc1\nc2\nc3\n", 2);
    check(&[Some(0)], "b1\nb2\nb3\nc1\nc2\nc3\n", 3);
    // Fails within a line, then also at the line end that closes it.
    check(&[Some(1), Some(0), Some(0)], "a\nc1\nc2\nc3\n", 6);
}
