//! The benchmark lab: anyone can repeat the published reports on their own machine. Each command of `yumen-bench`
//! is a module here; load itself is made in `yumen-load`.

pub mod load_command;
pub mod upstream_command;
