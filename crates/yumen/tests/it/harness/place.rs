//! The place of a process: this machine, or a network namespace.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use yumen_test::TestNetwork;

#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// Address of its listeners.
    pub(crate) host: IpAddr,
    /// Prefix of its commands.
    within: Vec<String>,
    namespace: Option<String>,
}

impl Default for Place {
    fn default() -> Place {
        Place { host: Ipv4Addr::LOCALHOST.into(), within: Vec::new(), namespace: None }
    }
}

impl Place {
    /// A place in a test network.
    pub(crate) fn of(net: &TestNetwork, number: u8) -> Place {
        Place {
            host: net.address(number).into(),
            within: net.within(number),
            namespace: Some(net.namespace(number)),
        }
    }

    /// Connects from the place, where the address may be specific to its namespace.
    pub(crate) fn connect(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let Some(namespace) = self.namespace.clone() else { return TcpStream::connect(address) };
        // A separate thread, because a thread cannot leave a namespace again.
        let connecting = std::thread::spawn(move || {
            let namespace = File::open(Path::new("/var/run/netns").join(namespace))?;
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            TcpStream::connect(address)
        });
        connecting.join().expect("it does not panic")
    }

    /// Whether it is the namespace of the test.
    pub(crate) fn is_here(&self) -> bool {
        self.namespace.is_none()
    }

    /// A command that runs in the place.
    pub(crate) fn command(&self, program: &str) -> Command {
        let Some((first, rest)) = self.within.split_first() else { return Command::new(program) };
        let mut command = Command::new(first);
        command.args(rest).arg(program);
        command
    }
}
