//! The transport of a sink, chosen by its address.

use yumen_plugin::{SinkAddress, SinkReply, SinkRequest};

use crate::connector::{OutboundConnector, SendFault};
use crate::file_sink::FileSink;
use crate::google_sink::GoogleSink;
use crate::grpc_sink::GrpcSink;
use crate::http_sink::HttpSink;
use crate::kafka_sink::KafkaSink;
use crate::stream_sink::{TcpSink, UdpSink};

/// The transport of one sink.
pub(crate) enum SinkTransport {
    Http(HttpSink),
    Grpc(GrpcSink),
    Tcp(TcpSink),
    Udp(UdpSink),
    File(FileSink),
    Kafka(Box<KafkaSink>),
    Google(Box<GoogleSink>),
}

impl SinkTransport {
    /// The transport for an address; connects when it is used.
    pub(crate) fn new(address: &SinkAddress, connector: OutboundConnector) -> SinkTransport {
        match address.clone() {
            SinkAddress::Http { endpoints, tls, timeout_ms, idle_ms } => {
                SinkTransport::Http(HttpSink::new(&endpoints, tls, timeout_ms, idle_ms, connector))
            }
            SinkAddress::Grpc { endpoint, tls, timeout_ms, idle_ms } => {
                SinkTransport::Grpc(GrpcSink::new(&endpoint, tls, timeout_ms, idle_ms, connector))
            }
            SinkAddress::Tcp { host, port, tls, timeout_ms, idle_ms } => {
                SinkTransport::Tcp(TcpSink::new(host, port, tls, timeout_ms, idle_ms, connector))
            }
            SinkAddress::Udp { host, port } => SinkTransport::Udp(UdpSink::new(host, port)),
            SinkAddress::File { path } => SinkTransport::File(FileSink::new(path)),
            SinkAddress::Google(account) => {
                SinkTransport::Google(Box::new(GoogleSink::new(*account, &connector)))
            }
            SinkAddress::Kafka(settings) => {
                SinkTransport::Kafka(Box::new(KafkaSink::new(*settings, connector)))
            }
        }
    }

    /// Sends one request. Transports without responses return status 200.
    pub(crate) async fn send(&mut self, request: &SinkRequest) -> Result<SinkReply, SendFault> {
        let ok = SinkReply { status: 200, ..SinkReply::default() };
        match self {
            SinkTransport::Http(http) => http.send(request).await,
            SinkTransport::Grpc(grpc) => grpc.send(request).await,
            SinkTransport::Tcp(tcp) => tcp.send(request).await.map(|()| ok),
            SinkTransport::Udp(udp) => udp.send(request).await.map(|()| ok),
            SinkTransport::File(file) => file.send(request).await.map(|()| ok),
            SinkTransport::Google(google) => google.send(request).await,
            SinkTransport::Kafka(kafka) => kafka.send(request).await.map(|()| ok),
        }
    }
}
