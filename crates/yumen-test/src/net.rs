//! A test network: namespaces with links that can be cut, and packets that are lost in one direction,
//! unnoticed by both sides.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Destination of lost packets: no interface has this address.
const NOBODY: &str = "02:00:00:00:00:ff";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A bridge with the links of the namespaces and of this machine; removed on drop.
pub struct TestNetwork {
    name: String,
    network: String,
    members: u8,
}

impl TestNetwork {
    /// A network of `members` namespaces; `None` if this process may not create one.
    pub fn new(members: u8) -> Option<TestNetwork> {
        let (id, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let network = format!("10.{}.{}", 100 + (id / 250 + number * 37) % 100, id % 250);
        // Names of links have at most 15 characters.
        let net =
            TestNetwork { name: format!("y{}{id}", (b'a' + (number % 26) as u8) as char), network, members };
        let made = net.make();
        if let Err(why) = &made {
            crate::missing_prerequisite(&format!("network namespaces cannot be created: {why}"));
        }
        // The drop removes the parts that exist so far.
        made.is_ok().then_some(net)
    }

    fn make(&self) -> Result<(), String> {
        let TestNetwork { name, network, .. } = self;
        ip(&format!("link add {name} type bridge"))?;
        ip(&format!("link set {name} up"))?;
        // This machine has a link too, so that it can be cut off.
        ip(&format!("link add {name}h type veth peer name {name}p"))?;
        ip(&format!("link set {name}p master {name} up"))?;
        ip(&format!("addr add {network}.1/24 dev {name}h"))?;
        ip(&format!("link set {name}h up"))?;
        for member in 0..self.members {
            let address = self.address(member);
            ip(&format!("netns add {name}n{member}"))?;
            ip(&format!("link add {name}m{member} type veth peer name eth0 netns {name}n{member}"))?;
            ip(&format!("link set {name}m{member} master {name} up"))?;
            ip(&format!("-n {name}n{member} addr add {address}/24 dev eth0"))?;
            ip(&format!("-n {name}n{member} link set eth0 up"))?;
            ip(&format!("-n {name}n{member} link set lo up"))?;
        }
        Ok(())
    }

    /// The address of this machine in the network.
    pub fn here(&self) -> Ipv4Addr {
        self.at(1)
    }

    /// The address of a namespace.
    pub fn address(&self, member: u8) -> Ipv4Addr {
        self.at(member + 2)
    }

    fn at(&self, number: u8) -> Ipv4Addr {
        format!("{}.{number}", self.network).parse().expect("three numbers and a fourth")
    }

    /// The prefix of a command that runs in a namespace.
    pub fn within(&self, member: u8) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(member)].map(str::to_owned).to_vec()
    }

    /// The name of a namespace.
    pub fn namespace(&self, member: u8) -> String {
        format!("{}n{member}", self.name)
    }

    /// Cuts or restores the link of a namespace.
    pub fn cut(&self, member: u8, is_cut: bool) {
        self.set(&format!("{}m{member}", self.name), is_cut);
    }

    /// Cuts or restores the link of this machine.
    pub fn cut_here(&self, is_cut: bool) {
        self.set(&format!("{}p", self.name), is_cut);
    }

    /// Loses all packets from one namespace to another, or stops losing them. The reverse direction works.
    pub fn lose(&self, from: u8, to: u8, is_lost: bool) {
        let (name, to) = (&self.name, self.address(to));
        let neighbour = format!("-n {name}n{from} neigh");
        let done = match is_lost {
            true => ip(&format!("{neighbour} replace {to} lladdr {NOBODY} nud permanent dev eth0")),
            false => ip(&format!("{neighbour} del {to} dev eth0")),
        };
        done.unwrap_or_else(|error| panic!("{error}"));
    }

    fn set(&self, cable: &str, is_cut: bool) {
        let done = ip(&format!("link set {cable} {}", if is_cut { "down" } else { "up" }));
        done.unwrap_or_else(|error| panic!("{error}"));
    }
}

impl Drop for TestNetwork {
    fn drop(&mut self) {
        let name = &self.name;
        // Errors are ignored: parts may be missing.
        for member in 0..self.members {
            let _ = ip(&format!("netns del {name}n{member}"));
            let _ = ip(&format!("link del {name}m{member}"));
        }
        let _ = ip(&format!("link del {name}h"));
        let _ = ip(&format!("link del {name}"));
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split(' ')).output().map_err(|error| error.to_string())?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
