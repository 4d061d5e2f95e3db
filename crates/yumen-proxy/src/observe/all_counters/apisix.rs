//! The counters under the metric names of APISIX, for its dashboards.

use yumen_base::metric::{MetricFamily, MetricKind, MetricSeries, MetricValue};

use super::{AllCounters, Read, single};

/// Connection states that APISIX exports from NGINX and that are counted here.
const STATES: &[(&str, Read)] = &[
    ("accepted", |c| (c.connections.accepted.get() + c.connections.refused.get()) as f64),
    ("handled", |c| c.connections.accepted.get() as f64),
    ("active", |c| c.connections.open.get() as f64),
    ("total", requests),
];

fn requests(of: &crate::observe::counters::WorkerCounters) -> f64 {
    of.requests.by_class.iter().map(|class| class.get()).sum::<u64>() as f64
}

impl AllCounters {
    pub(super) fn gather_as_apisix(&self, out: &mut Vec<MetricFamily>) {
        let name = "apisix_http_requests_total";
        let help = "The sum of `yumen_requests_total`, by the name of APISIX.";
        out.push(single(name, help, MetricKind::Counter, self.sum(requests)));
        let sample = |(state, read): &(&str, Read)| MetricSeries {
            labels: vec![("state", (*state).to_owned())],
            value: MetricValue::Number(self.sum(read)),
        };
        out.push(MetricFamily {
            name: "apisix_nginx_http_current_connections".into(),
            help:
                "Client connections since the start (`accepted`, those served of them `handled`), those open \
                   (`active`), and their requests (`total`), by the name of APISIX."
                    .into(),
            kind: MetricKind::Gauge,
            samples: STATES.iter().map(sample).collect(),
        });
    }
}
