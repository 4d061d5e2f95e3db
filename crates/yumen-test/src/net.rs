//! A network of the test's own: places in namespaces, each on a cable that can be cut, and packets that are lost on
//! their way from one place to another, without anybody's being told.
//!
//! Knows nothing of what runs in the places.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Where packets go that shall be lost: nobody has this address.
const NOBODY: &str = "02:00:00:00:00:ff";

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A switch, the cables of the places, and this machine's own. Gone when dropped.
pub struct TestNetwork {
    name: String,
    network: String,
    places: u8,
}

impl TestNetwork {
    /// A network of `places` namespaces; `None` if this process may not create one.
    pub fn new(places: u8) -> Option<TestNetwork> {
        let (id, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let network = format!("10.{}.{}", 100 + (id / 250 + number * 37) % 100, id % 250);
        // Names of links have 15 letters at most.
        let net =
            TestNetwork { name: format!("y{}{id}", (b'a' + (number % 26) as u8) as char), network, places };
        let made = net.make();
        if let Err(why) = &made {
            crate::missing_prerequisite(&format!("network namespaces cannot be created: {why}"));
        }
        // What was made so far is taken away by dropping it.
        made.is_ok().then_some(net)
    }

    fn make(&self) -> Result<(), String> {
        let TestNetwork { name, network, .. } = self;
        ip(&format!("link add {name} type bridge"))?;
        ip(&format!("link set {name} up"))?;
        // This machine is on a cable of its own, so that it can be cut off too.
        ip(&format!("link add {name}h type veth peer name {name}p"))?;
        ip(&format!("link set {name}p master {name} up"))?;
        ip(&format!("addr add {network}.1/24 dev {name}h"))?;
        ip(&format!("link set {name}h up"))?;
        for place in 0..self.places {
            let address = self.address(place);
            ip(&format!("netns add {name}n{place}"))?;
            ip(&format!("link add {name}m{place} type veth peer name eth0 netns {name}n{place}"))?;
            ip(&format!("link set {name}m{place} master {name} up"))?;
            ip(&format!("-n {name}n{place} addr add {address}/24 dev eth0"))?;
            ip(&format!("-n {name}n{place} link set eth0 up"))?;
            ip(&format!("-n {name}n{place} link set lo up"))?;
        }
        Ok(())
    }

    /// The address of this machine in the network.
    pub fn here(&self) -> Ipv4Addr {
        self.at(1)
    }

    /// The address of a place.
    pub fn address(&self, place: u8) -> Ipv4Addr {
        self.at(place + 2)
    }

    fn at(&self, number: u8) -> Ipv4Addr {
        format!("{}.{number}", self.network).parse().expect("three numbers and a fourth")
    }

    /// What is put before a command, so that it runs in a place.
    pub fn within(&self, place: u8) -> Vec<String> {
        ["ip", "netns", "exec", &self.namespace(place)].map(str::to_owned).to_vec()
    }

    /// What the namespace of a place is called.
    pub fn namespace(&self, place: u8) -> String {
        format!("{}n{place}", self.name)
    }

    /// Cuts a place's cable, or mends it.
    pub fn cut(&self, place: u8, is_cut: bool) {
        self.set(&format!("{}m{place}", self.name), is_cut);
    }

    /// Cuts this machine off from all places, or mends that.
    pub fn cut_here(&self, is_cut: bool) {
        self.set(&format!("{}p", self.name), is_cut);
    }

    /// Loses all packets from one place to another, or no longer does. What goes the other way arrives.
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
        // What was never made cannot be taken away.
        for place in 0..self.places {
            let _ = ip(&format!("netns del {name}n{place}"));
            let _ = ip(&format!("link del {name}m{place}"));
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
