//! Live view: redraws the terminal in each interval and reads keys.

use std::io::Write;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::Value;

use super::frame::{SortOrder, TopFrame};
use super::{TopSource, table};

const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Shows frames until `q` is pressed. If a request fails, shows the error and retries in the next interval.
pub(super) fn show(source: &TopSource, interval: Duration, mut order: SortOrder) -> anyhow::Result<()> {
    // The first request precedes raw mode, so that its error stays on the screen.
    let mut looks = (Value::Null, source.look()?);
    let _terminal = RawTerminal::enter()?;
    loop {
        let frame = TopFrame::between(&looks.0, &looks.1, order);
        draw(&frame, None)?;
        let next = Instant::now() + interval;
        loop {
            match key_until(next)? {
                Some(TopKey::Sort(by)) => {
                    order = by;
                    draw(&TopFrame::between(&looks.0, &looks.1, order), None)?;
                }
                Some(TopKey::Quit) => return Ok(()),
                Some(TopKey::Other) => {}
                None => break,
            }
        }
        match source.look() {
            Ok(now) => looks = (looks.1, now),
            Err(error) => draw(&frame, Some(&format!("{error:#}")))?,
        }
    }
}

enum TopKey {
    Sort(SortOrder),
    Quit,
    Other,
}

/// Next key pressed before `end`.
fn key_until(end: Instant) -> anyhow::Result<Option<TopKey>> {
    let stdin = std::io::stdin();
    if !isatty(&stdin) {
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        return Ok(None);
    }
    let left = end.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
    match poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&left)) {
        Ok(0) => return Ok(None),
        // SIGWINCH interrupts poll; the next frame uses the new size.
        Err(rustix::io::Errno::INTR) => return Ok(Some(TopKey::Other)),
        ready => ready?,
    };
    let mut bytes = [0; 16];
    let count = rustix::io::read(&stdin, &mut bytes)?;
    Ok(Some(match bytes[..count].first() {
        Some(b'r') => TopKey::Sort(SortOrder::Rate),
        Some(b'l') => TopKey::Sort(SortOrder::Latency),
        Some(b'c') => TopKey::Sort(SortOrder::Cpu),
        Some(b'e') => TopKey::Sort(SortOrder::Errors),
        // End of input, or the bytes of Ctrl-C and Ctrl-D in raw mode.
        None | Some(b'q' | 3 | 4) => TopKey::Quit,
        Some(_) => TopKey::Other,
    }))
}

fn draw(frame: &TopFrame, error: Option<&str>) -> std::io::Result<()> {
    let size = tcgetwinsize(std::io::stdout()).ok();
    let (width, height) = size.map_or((120, 40), |size| (size.ws_col.into(), size.ws_row.into()));
    let text = table::render(frame, usize::max(height, 8) - 1);
    let keys = "sort: r rate  l latency  c cpu  e errors    q quit";
    let mut out = String::from(HOME);
    for line in text.lines().take(usize::max(height, 2) - 1) {
        out.extend(line.chars().take(width));
        // In raw mode a line feed does not return the carriage.
        out.push_str(CLEAR_LINE);
        out.push_str("\r\n");
    }
    out.extend(error.unwrap_or(keys).chars().filter(|each| !each.is_control()).take(width));
    out.push_str(CLEAR_LINE);
    out.push_str(CLEAR_BELOW);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(out.as_bytes())?;
    stdout.flush()
}

/// Terminal in raw mode; restores the previous mode on drop.
struct RawTerminal {
    before: Option<Termios>,
}

impl RawTerminal {
    fn enter() -> anyhow::Result<RawTerminal> {
        let stdin = std::io::stdin();
        let before = if isatty(&stdin) { Some(tcgetattr(&stdin)?) } else { None };
        if let Some(before) = &before {
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        }
        // Constructed before the write, so that drop restores the terminal if the write fails.
        let terminal = RawTerminal { before };
        std::io::stdout().write_all(ENTER.as_bytes())?;
        Ok(terminal)
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // Fails only if the terminal is closed.
        let _ = std::io::stdout().write_all(LEAVE.as_bytes());
        let _ = std::io::stdout().flush();
        if let Some(before) = &self.before {
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}
