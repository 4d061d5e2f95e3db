//! Errors of commands as people and programs read them: rendered problems, colours, exit statuses.
//!
//! Must not know commands or the sources of problems.

mod color;
mod exit_status;
mod problem_text;
mod received_problem;
mod secret_mask;
mod source_text;

pub(crate) use color::{ColorChoice, choose_colors, has_colors};
pub(crate) use exit_status::{ConfigProblems, ExitStatus};
pub(crate) use problem_text::{render, split_effect};
pub(crate) use received_problem::problem_from_json;
pub(crate) use source_text::SourceText;
