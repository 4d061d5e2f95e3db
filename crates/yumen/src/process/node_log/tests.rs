use std::io::Read;
use std::os::fd::AsFd;
use std::time::Instant;

use yumen_config::node::NodeLogFormat;

use super::{NodeLogState, escaped};

fn state(format: NodeLogFormat) -> NodeLogState {
    NodeLogState { format, lost: 0, is_torn: false }
}

#[test]
fn unread_pipe_loses_lines_without_blocking() {
    for (format, expected) in [
        (NodeLogFormat::Text, " WARN node log lines lost: the reader is too slow lines="),
        (NodeLogFormat::Json, "{\"level\":\"WARN\","),
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
        // 1 MiB: the maximum capacity of a pipe for unprivileged processes (pipe(7)).
        let mut waiting = vec![0; 1 << 20];
        let read = reader.read(&mut waiting).unwrap();
        log.write(writer.as_fd(), b"again\n");
        assert_eq!(log.lost, 0);
        drop(writer);
        let mut rest = String::from_utf8(waiting[..read].to_vec()).unwrap();
        reader.read_to_string(&mut rest).unwrap();
        let lines: Vec<&str> = rest.lines().collect();
        let [whole @ .., lost_lines, again] = &lines[..] else { panic!("{rest}") };
        assert!(lost_lines.starts_with(expected) && lost_lines.contains(&lost.to_string()), "{lost_lines}");
        assert_eq!(*again, "again");
        assert!(whole.iter().all(|line| line.bytes().all(|byte| byte == b'x')));
    }
}

#[test]
fn a_pipe_without_a_reader_is_no_reason_to_fail() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut log = state(NodeLogFormat::Text);
    log.write(writer.as_fd(), b"x\n");
    assert_eq!(log.lost, 1);
}

#[test]
fn texts_of_others_neither_begin_lines_nor_speak_to_terminals() {
    let check = |line: &str, has_colours: bool, expected: &str| {
        assert_eq!(escaped(line, has_colours), expected, "{line:?}");
    };
    check(" INFO serving host=\"a\" é\n", false, " INFO serving host=\"a\" é\n");
    check("no end", false, "no end");
    check("host=a\r\nWARN forged\n", false, "host=a\\u000d\\u000aWARN forged\n");
    check("host=\0\u{7f}\u{9b}x\n\n", false, "host=\\u0000\\u007f\\u009bx\\u000a\n");
    check("host=\u{202e}moc\u{2028}\u{1b}[2J\n", true, "host=\\u202emoc\\u2028\\u001b[2J\n");
    check("\u{1b}[33m WARN\u{1b}[0m \u{1b}[1;2\n", true, "\u{1b}[33m WARN\u{1b}[0m \\u001b[1;2\n");
    check("\u{1b}[33m\n", false, "\\u001b[33m\n");
    let json = serde_json::json!({ "host": "\u{9b}\r\n\u{2028}" });
    let line = escaped(&format!("{json}\n"), false).into_owned();
    assert!(line.is_ascii());
    assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), json);
}
