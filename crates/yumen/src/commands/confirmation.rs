//! Confirmation of large changes: a question on a terminal, otherwise an option.

use std::io::{BufRead, IsTerminal, Write};

/// Asks on the terminal whether to go on; without a terminal the answer is no.
pub(crate) fn ask(reason: &str, question: &str) -> bool {
    let (mut screen, keyboard) = (std::io::stderr(), std::io::stdin());
    if !screen.is_terminal() || !keyboard.is_terminal() {
        return false;
    }
    // If the terminal is gone, there is no answer either.
    let _ = write!(screen, "{reason}\n{question} [y/N] ").and_then(|()| screen.flush());
    let mut line = String::new();
    keyboard.lock().read_line(&mut line).is_ok() && is_yes(&line)
}

fn is_yes(line: &str) -> bool {
    ["y", "yes"].iter().any(|yes| line.trim().eq_ignore_ascii_case(yes))
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_yes_is_yes() {
        let of = |line| super::is_yes(line);
        assert_eq!(
            [of("y\n"), of("Yes\n"), of("\n"), of("n\n"), of("yesterday\n")],
            [true, true, false, false, false]
        );
    }
}
