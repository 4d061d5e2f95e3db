//! The benchmark lab, with which published reports can be repeated on any machine. Each command of
//! `yumen-bench` is a module here; `yumen-load` generates the load.

pub mod compare;
pub mod doctor;
pub mod load_command;
pub mod load_table;
pub mod load_tsv;
pub mod metric;
pub mod quantity;
pub mod record;
pub mod report;
pub mod report_command;
pub mod run;
pub mod scenario;
pub mod statistics;
pub mod targets;
pub mod threshold;
pub mod units;
pub mod upstream_command;
pub mod verdict;
