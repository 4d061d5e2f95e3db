//! The steps of a rate ramp as tab-separated values, with the columns of autobench. Pure.

use std::fmt::Write;

use yumen_load::LoadSummary;

const COLUMNS: &str = "dem_req_rate\treq_rate\tcon_rate\tmin_rep_rate\tavg_rep_rate\tmax_rep_rate\t\
                       stddev_rep_rate\tresp_time\tnet_io\terrors\n";

/// One line per step: rates per second, mean response time in milliseconds, kB/s in both directions, errors
/// in percent.
pub fn render(summary: &LoadSummary) -> String {
    let mut out = COLUMNS.to_owned();
    for step in &summary.ramp {
        let written = writeln!(
            out,
            "{}\t{:.1}\t{:.1}\t{:.1}\t{:.1}\t{:.1}\t{:.1}\t{:.3}\t{:.1}\t{:.2}",
            step.demanded_request_rate,
            step.request_rate,
            step.achieved_connection_rate,
            step.reply_rate_min,
            step.reply_rate,
            step.reply_rate_max,
            step.reply_rate_stdev,
            step.latency.mean_ns / 1e6,
            step.net_io_bytes / 1e3,
            step.error_percent
        );
        written.expect("a string takes whatever is written");
    }
    out
}
