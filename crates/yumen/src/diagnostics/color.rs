//! The choice between colours and plain text.

use std::io::IsTerminal;
use std::sync::OnceLock;

/// Use of colours in output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On terminals, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Sets the choice of the command line; the first call counts.
pub(crate) fn choose_colors(choice: ColorChoice) {
    let _ = CHOICE.set(choice);
}

/// Whether output to `stream` has colours.
pub(crate) fn has_colors(stream: &impl IsTerminal) -> bool {
    match CHOICE.get().copied().unwrap_or_default() {
        ColorChoice::Always => true,
        ColorChoice::Never => false,
        // An empty variable does not count (no-color.org).
        ColorChoice::Auto => {
            let is_off = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            !is_off && stream.is_terminal()
        }
    }
}
