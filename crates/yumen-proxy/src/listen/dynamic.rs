//! Listeners that open, change and close while the worker runs.
//!
//! Applies the commands of the owner of the sockets. Must not choose between listeners, or bind sockets.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use yumen_plugin::ListenerNumber;
use yumen_snapshot::{ListenProtocol, ListenSettings};

use super::listener::http3::{self, Http3Control};
use super::listener::{self, AcceptControl, ListenSocket, ListenerContext};
use super::quic::Http3Listener;
use crate::l4::udp::{self, DatagramControl, UdpListenSocket};
use crate::runtime::worker_duty::WorkerDuty;
use crate::settings::StreamProtocol;
use crate::tls::DownstreamTlsAcceptor;
use crate::worker::Worker;

/// The address of a listening socket. One socket per worker has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenAddress {
    /// TCP or UDP; the two have ports of their own.
    pub transport: ListenTransport,
    /// The bound address.
    pub address: SocketAddr,
}

/// The transport protocol of a listening socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListenTransport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A change of the listeners of one worker.
#[derive(Debug)]
pub enum ListenerCommand {
    /// Accepts on new sockets.
    Open {
        /// The address of the sockets.
        at: ListenAddress,
        /// Sockets of this worker.
        sockets: WorkerListenSockets,
        /// The listener that they belong to.
        listener: DynamicListener,
        /// Reports that the worker accepts.
        receipt: CommandReceipt,
    },
    /// Accepts on the same sockets with other settings. Connections that are already accepted keep theirs.
    Change {
        /// The address of the sockets.
        at: ListenAddress,
        /// The listener that they belong to from now on.
        listener: DynamicListener,
    },
    /// Accepts the connections that are queued or on their way, then closes the sockets.
    Close {
        /// The address of the sockets.
        at: ListenAddress,
        /// Reports that the sockets are closed.
        receipt: CommandReceipt,
    },
}

/// The sockets of one worker for one address.
pub enum WorkerListenSockets {
    /// Sockets of an HTTP or stream listener.
    Tcp(Vec<TcpListener>),
    /// Sockets of UDP sessions.
    Udp(Vec<UdpSocket>),
    /// Endpoints of HTTP/3.
    Http3(Vec<Http3Listener>),
}

impl std::fmt::Debug for WorkerListenSockets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (name, count) = match self {
            WorkerListenSockets::Tcp(sockets) => ("Tcp", sockets.len()),
            WorkerListenSockets::Udp(sockets) => ("Udp", sockets.len()),
            WorkerListenSockets::Http3(endpoints) => ("Http3", endpoints.len()),
        };
        f.debug_tuple(name).field(&count).finish()
    }
}

/// A listener of the configuration.
#[derive(Debug, Clone)]
pub struct DynamicListener {
    /// The number that its connections carry.
    pub number: ListenerNumber,
    /// Its settings.
    pub settings: Arc<ListenSettings>,
    /// The `Alt-Svc` field line for responses, with its CRLF, if HTTP/3 is served (RFC 7838).
    pub alt_svc: Option<Vec<u8>>,
}

impl DynamicListener {
    /// See [`yumen_plugin::ClientInfo::mapped_port`].
    fn mapped_port(&self) -> u16 {
        let ListenSettings { address, port, .. } = &*self.settings;
        if address.port() == *port { 0 } else { *port }
    }

    fn context(&self, acceptor: &DownstreamTlsAcceptor) -> ListenerContext {
        let acceptor = || acceptor.for_listener(self.number);
        let (tls, streams) = match self.settings.protocol {
            ListenProtocol::Http => (None, None),
            ListenProtocol::Https => (Some(acceptor()), None),
            ListenProtocol::Tcp | ListenProtocol::Udp => (None, Some(StreamProtocol::Tcp)),
            ListenProtocol::Tls => (Some(acceptor().for_streams()), Some(StreamProtocol::Tls)),
        };
        let tls = match &self.alt_svc {
            Some(line) => tls.map(|acceptor| acceptor.with_alt_svc(line.clone())),
            None => tls,
        };
        ListenerContext {
            number: self.number,
            mapped_port: self.mapped_port(),
            tls: tls.map(Rc::new),
            proxy_from: self.settings.proxy_from.clone(),
            streams,
        }
    }
}

/// Confirms one command to its sender, once every worker has dropped its clone.
#[derive(Debug, Clone)]
pub struct CommandReceipt(UnboundedSender<String>);

/// The confirmation of one command by all workers.
#[derive(Debug)]
pub struct CommandConfirmation(UnboundedReceiver<String>);

impl CommandReceipt {
    /// A receipt to clone for each worker, and its confirmation.
    pub fn new() -> (CommandReceipt, CommandConfirmation) {
        let (sender, receiver) = unbounded_channel();
        (CommandReceipt(sender), CommandConfirmation(receiver))
    }

    fn fail(&self, error: &io::Error) {
        // A sender that does not wait for the result has dropped the other end.
        let _ = self.0.send(error.to_string());
    }
}

impl CommandConfirmation {
    /// Waits for all workers.
    ///
    /// # Errors
    ///
    /// The first failure of a worker.
    pub async fn wait(mut self) -> Result<(), String> {
        match self.0.recv().await {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

/// The dynamic listeners of one worker.
pub(crate) struct DynamicListeners {
    worker: Rc<Worker>,
    acceptor: DownstreamTlsAcceptor,
    duty: watch::Receiver<WorkerDuty>,
    open: HashMap<ListenAddress, OpenListener>,
    /// Accept loops in their last call.
    closing: Vec<JoinHandle<()>>,
}

struct OpenListener {
    control: OpenControl,
    tasks: Vec<JoinHandle<()>>,
}

enum OpenControl {
    Tcp(Rc<AcceptControl>),
    Udp(Rc<DatagramControl>),
    Http3(Rc<Http3Control>),
}

impl DynamicListeners {
    pub(crate) fn new(
        worker: Rc<Worker>,
        acceptor: DownstreamTlsAcceptor,
        duty: watch::Receiver<WorkerDuty>,
    ) -> DynamicListeners {
        DynamicListeners { worker, acceptor, duty, open: HashMap::new(), closing: Vec::new() }
    }

    /// Applies commands until the duty of the worker ends. Returns the accept loops that end with it.
    pub(crate) async fn run(
        mut self,
        mut commands: UnboundedReceiver<ListenerCommand>,
    ) -> Vec<JoinHandle<()>> {
        let mut duty = self.duty.clone();
        loop {
            tokio::select! {
                biased;
                _ = duty.wait_for(|duty| duty.is_over()) => break,
                command = commands.recv() => match command {
                    Some(command) => self.apply(command),
                    // The owner has ended; the listeners stay open.
                    None => break,
                },
            }
        }
        let accepts = |open: &OpenListener| !matches!(open.control, OpenControl::Udp(_));
        // Not those of UDP: they forward the datagrams of open sessions until these end.
        let accepting = self.open.into_values().filter(accepts).flat_map(|open| open.tasks);
        accepting.chain(self.closing).collect()
    }

    fn apply(&mut self, command: ListenerCommand) {
        match command {
            ListenerCommand::Open { at, sockets, listener, receipt } => {
                match self.open_sockets(sockets, &listener) {
                    Ok(open) => drop(self.open.insert(at, open)),
                    Err(error) => receipt.fail(&error),
                }
            }
            ListenerCommand::Change { at, listener } => {
                if let Some(open) = self.open.get(&at) {
                    open.control.replace(&listener, &self.acceptor);
                }
            }
            ListenerCommand::Close { at, receipt } => {
                self.closing.retain(|task| !task.is_finished());
                if let Some(open) = self.open.remove(&at) {
                    let is_tcp = matches!(open.control, OpenControl::Tcp(_));
                    let closing = tokio::task::spawn_local(close(open, receipt));
                    // The others end with their sessions and connections, which the drain of the worker ends.
                    self.closing.extend(is_tcp.then_some(closing));
                }
            }
        }
    }

    fn open_sockets(
        &self,
        sockets: WorkerListenSockets,
        listener: &DynamicListener,
    ) -> io::Result<OpenListener> {
        let (worker, duty) = (&self.worker, &self.duty);
        match sockets {
            WorkerListenSockets::Tcp(sockets) => {
                // All before the first task: a failure must not leave a listener that only some sockets serve.
                let opened = sockets.into_iter().map(ListenSocket::open).collect::<io::Result<Vec<_>>>()?;
                let control = AcceptControl::new(listener.context(&self.acceptor));
                let serve = |socket| {
                    let accepting =
                        listener::accept_on(worker.clone(), socket, control.clone(), duty.clone());
                    tokio::task::spawn_local(accepting)
                };
                let tasks = opened.into_iter().map(serve).collect();
                Ok(OpenListener { control: OpenControl::Tcp(control), tasks })
            }
            WorkerListenSockets::Udp(sockets) => {
                let opened =
                    sockets.into_iter().map(UdpListenSocket::open).collect::<io::Result<Vec<_>>>()?;
                let control = Rc::<DatagramControl>::default();
                let serve = |socket| {
                    let serving = udp::serve_on(worker.clone(), socket, control.clone(), duty.clone());
                    tokio::task::spawn_local(serving)
                };
                let tasks = opened.into_iter().map(serve).collect();
                let control = OpenControl::Udp(control);
                control.replace(listener, &self.acceptor);
                Ok(OpenListener { control, tasks })
            }
            WorkerListenSockets::Http3(endpoints) => {
                let opened =
                    endpoints.into_iter().map(Http3Listener::open).collect::<io::Result<Vec<_>>>()?;
                let control = Rc::<Http3Control>::default();
                let serve = |endpoint| {
                    let accepting = http3::accept_on(worker.clone(), endpoint, control.clone(), duty.clone());
                    tokio::task::spawn_local(accepting)
                };
                let tasks = opened.into_iter().map(serve).collect();
                let control = OpenControl::Http3(control);
                control.replace(listener, &self.acceptor);
                Ok(OpenListener { control, tasks })
            }
        }
    }
}

impl OpenControl {
    fn replace(&self, listener: &DynamicListener, acceptor: &DownstreamTlsAcceptor) {
        match self {
            OpenControl::Tcp(control) => control.replace(listener.context(acceptor)),
            OpenControl::Udp(control) => {
                control.number.set(listener.number);
                control.mapped_port.set(listener.mapped_port());
            }
            OpenControl::Http3(control) => {
                control.number.set(listener.number);
                control.mapped_port.set(listener.mapped_port());
            }
        }
    }

    fn close(&self) {
        match self {
            OpenControl::Tcp(control) => control.close(),
            OpenControl::Udp(control) => control.close.give(),
            OpenControl::Http3(control) => control.close.give(),
        }
    }
}

/// Ends the accept loops of a listener, and confirms that its sockets are closed.
async fn close(open: OpenListener, receipt: CommandReceipt) {
    open.control.close();
    for task in open.tasks {
        // A task that panicked has closed its socket too.
        let _ = task.await;
    }
    drop(receipt);
}
