use std::io::Read;
use std::os::fd::AsFd;
use std::time::Instant;

use yumen_config::node::LogFormat;

use super::State;

fn state(format: LogFormat) -> State {
    State { format, lost: 0, is_torn: false }
}

#[test]
fn a_pipe_that_nobody_reads_costs_lines_and_no_time() {
    for (format, told) in [
        (LogFormat::Text, " WARN lines of this log are lost, nobody read them lines="),
        (LogFormat::Json, "{\"level\":\"WARN\","),
    ] {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let mut log = state(format);
        let line = format!("{}\n", "x".repeat(999));
        let started = Instant::now();
        for _ in 0..1000 {
            log.write(writer.as_fd(), line.as_bytes());
        }
        assert!(started.elapsed().as_secs() < 5);
        let lost = log.lost;
        assert!(lost > 500, "{lost}");
        // As much as there is: a pipe has no more than that.
        let mut waiting = vec![0; 1 << 20];
        let read = reader.read(&mut waiting).unwrap();
        log.write(writer.as_fd(), b"again\n");
        assert_eq!(log.lost, 0);
        drop(writer);
        let mut rest = String::from_utf8(waiting[..read].to_vec()).unwrap();
        reader.read_to_string(&mut rest).unwrap();
        let lines: Vec<&str> = rest.lines().collect();
        let [whole @ .., lost_lines, again] = &lines[..] else { panic!("{rest}") };
        assert!(lost_lines.starts_with(told) && lost_lines.contains(&lost.to_string()), "{lost_lines}");
        assert_eq!(*again, "again");
        assert!(whole.iter().all(|line| line.bytes().all(|byte| byte == b'x')));
    }
}

#[test]
fn a_pipe_without_a_reader_is_no_reason_to_fail() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut log = state(LogFormat::Text);
    log.write(writer.as_fd(), b"x\n");
    assert_eq!(log.lost, 1);
}
