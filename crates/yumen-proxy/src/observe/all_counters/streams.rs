//! Metric families of TCP and UDP streams, summed over all workers.

use yumen_base::Counter;
use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricValue};

use crate::fault::stream::StreamFault;
use crate::observe::counters::StreamCounters;
use crate::settings::StreamProtocol;

/// Appends the families of all workers' stream counters.
pub(super) fn gather(all: &[&StreamCounters], out: &mut Vec<MetricFamily>) {
    let sum = |read: &dyn Fn(&StreamCounters) -> f64| all.iter().map(|one| read(one)).sum::<f64>();
    let mut family = |name: &'static str, help: &'static str, kind, samples| {
        out.push(MetricFamily { name: name.into(), help: help.into(), kind, samples });
    };
    let labelled = |label: &'static str, word: &str, value: f64| MetricSeries {
        labels: if label.is_empty() { Vec::new() } else { vec![(label, word.to_owned())] },
        value: MetricValue::Number(value),
    };
    let begun = StreamProtocol::ALL.map(|protocol| {
        labelled("protocol", protocol.name(), sum(&|c| c.begun[protocol as usize].get() as f64))
    });
    family("yumen_streams_total", "Streams begun.", MetricKind::Counter, begun.into());
    let open = StreamProtocol::ALL.map(|protocol| {
        labelled("protocol", protocol.name(), sum(&|c| c.open[protocol as usize].get() as f64))
    });
    family("yumen_streams", "Streams open.", MetricKind::Gauge, open.into());
    let faults = StreamFault::ALL
        .map(|fault| labelled("fault", fault.word(), sum(&|c| c.faults[fault.index()].get() as f64)));
    let help = "Streams that were refused or cut off.";
    family("yumen_stream_faults_total", help, MetricKind::Counter, faults.into());
    type Read = fn(&StreamCounters) -> &Counter;
    let plain: [(&'static str, &'static str, Read); 4] = [
        ("yumen_stream_received_bytes_total", "Bytes of ended streams from clients.", |c| &c.received_bytes),
        ("yumen_stream_sent_bytes_total", "Bytes of ended streams to clients.", |c| &c.sent_bytes),
        ("yumen_stream_spliced_bytes_total", "Bytes of streams and tunnels moved by splice.", |c| {
            &c.spliced_bytes
        }),
        ("yumen_udp_dropped_total", "Datagrams dropped by the gateway.", |c| &c.dropped_datagrams),
    ];
    for (name, help, read) in plain {
        let sample = labelled("", "", sum(&|c| read(c).get() as f64));
        family(name, help, MetricKind::Counter, vec![sample]);
    }
}
