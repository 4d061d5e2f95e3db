//! The benchmark lab: anyone can repeat the published reports on their own machine. Each command of `yumen-bench`
//! is a module here; load itself is made in `yumen-load`.

pub mod doctor;
pub mod load_command;
pub mod load_table;
pub mod load_tsv;
pub mod record;
pub mod run;
pub mod scenario;
pub mod targets;
pub mod units;
pub mod upstream_command;
