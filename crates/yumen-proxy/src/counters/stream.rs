//! What a worker counts of streams, and the families it becomes.

use yumen_base::metric::{Family, MetricKind, Sample, Value};
use yumen_base::{Counter, Gauge};
use yumen_plugin::Outcome;

use crate::fault::stream::Fault;
use crate::settings::StreamProtocol;

/// The counters of one worker's streams; it alone writes them.
#[derive(Debug, Default)]
pub(crate) struct StreamCounters {
    /// Streams begun, by protocol in the order of [`StreamProtocol::ALL`].
    begun: [Counter; 4],
    open: [Gauge; 4],
    received_bytes: Counter,
    sent_bytes: Counter,
    faults: [Counter; Fault::ALL.len()],
    /// Bytes that passed without being copied through this process.
    pub(crate) spliced_bytes: Counter,
    /// Datagrams dropped because somebody was behind.
    pub(crate) dropped_datagrams: Counter,
}

/// A stream that is counted as open until it ends, however that comes.
pub(crate) struct Open<'c>(&'c Gauge);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

impl StreamCounters {
    pub(crate) fn open(&self, protocol: StreamProtocol) -> Open<'_> {
        self.begun[protocol as usize].add(1);
        self.open[protocol as usize].add(1);
        Open(&self.open[protocol as usize])
    }

    /// Counts a connection that was to begin with a PROXY header and did not.
    pub(crate) fn no_proxy_header(&self) {
        self.faults[Fault::ProxyHeader.index()].add(1);
    }

    /// Counts a session of datagrams that was not begun.
    pub(crate) fn too_many_sessions(&self) {
        self.faults[Fault::TooManySessions.index()].add(1);
    }

    pub(crate) fn finish(&self, fault: Option<Fault>, outcome: &Outcome<'_>) {
        self.received_bytes.add(outcome.received_bytes);
        self.sent_bytes.add(outcome.sent_bytes);
        if let Some(fault) = fault {
            self.faults[fault.index()].add(1);
        }
    }

    /// The families of all workers' counters.
    pub(crate) fn gather(all: &[&StreamCounters], out: &mut Vec<Family>) {
        let sum = |read: &dyn Fn(&StreamCounters) -> f64| all.iter().map(|one| read(one)).sum::<f64>();
        let mut family = |name: &'static str, help: &'static str, kind, samples| {
            out.push(Family { name: name.into(), help: help.into(), kind, samples });
        };
        let labelled = |label: &'static str, word: &str, value: f64| Sample {
            labels: if label.is_empty() { Vec::new() } else { vec![(label, word.to_owned())] },
            value: Value::Number(value),
        };
        let begun = StreamProtocol::ALL.map(|protocol| {
            labelled("protocol", protocol.name(), sum(&|c| c.begun[protocol as usize].get() as f64))
        });
        family("yumen_streams_total", "Streams begun.", MetricKind::Counter, begun.into());
        let open = StreamProtocol::ALL.map(|protocol| {
            labelled("protocol", protocol.name(), sum(&|c| c.open[protocol as usize].get() as f64))
        });
        family("yumen_streams", "Streams open.", MetricKind::Gauge, open.into());
        let faults = Fault::ALL
            .map(|fault| labelled("fault", fault.word(), sum(&|c| c.faults[fault.index()].get() as f64)));
        let help = "Streams that were refused or cut off.";
        family("yumen_stream_faults_total", help, MetricKind::Counter, faults.into());
        type Read = fn(&StreamCounters) -> &Counter;
        let plain: [(&'static str, &'static str, Read); 4] = [
            ("yumen_stream_received_bytes_total", "Bytes of ended streams from clients.", |c| {
                &c.received_bytes
            }),
            ("yumen_stream_sent_bytes_total", "Bytes of ended streams to clients.", |c| &c.sent_bytes),
            (
                "yumen_stream_spliced_bytes_total",
                "Bytes of streams and tunnels the system moved by itself.",
                |c| &c.spliced_bytes,
            ),
            ("yumen_udp_dropped_total", "Datagrams dropped by the gateway.", |c| &c.dropped_datagrams),
        ];
        for (name, help, read) in plain {
            let sample = labelled("", "", sum(&|c| read(c).get() as f64));
            family(name, help, MetricKind::Counter, vec![sample]);
        }
    }
}
