//! Members in network namespaces, each on a cable that can be cut without anybody's being told.

use std::process::Command;

use super::cluster::Places;

/// A switch, members' cables, and this machine's own.
pub(super) struct Net {
    name: String,
    network: String,
    members: usize,
}

impl Net {
    /// A network of so many members; `None`, with a word about it, where one may not be made.
    #[allow(clippy::print_stderr, reason = "whoever runs the tests is told what was left out")]
    pub(super) fn new(members: usize) -> Option<Net> {
        let id = std::process::id();
        let network = format!("10.{}.{}", 100 + id / 250 % 100, id % 250);
        let net = Net { name: format!("ye{id}"), network, members };
        let made = net.make();
        if let Err(why) = &made {
            eprintln!("skipped: network namespaces cannot be made here: {why}");
        }
        // What was made so far is taken away by dropping it.
        made.is_ok().then_some(net)
    }

    fn make(&self) -> Result<(), String> {
        let Net { name, network, .. } = self;
        ip(&format!("link add {name} type bridge"))?;
        ip(&format!("link set {name} up"))?;
        // This machine is on a cable of its own, so that it can be cut off too.
        ip(&format!("link add {name}h type veth peer name {name}p"))?;
        ip(&format!("link set {name}p master {name} up"))?;
        ip(&format!("addr add {network}.1/24 dev {name}h"))?;
        ip(&format!("link set {name}h up"))?;
        for i in 0..self.members {
            ip(&format!("netns add {name}n{i}"))?;
            ip(&format!("link add {name}m{i} type veth peer name eth0 netns {name}n{i}"))?;
            ip(&format!("link set {name}m{i} master {name} up"))?;
            ip(&format!("-n {name}n{i} addr add {network}.{}/24 dev eth0", i + 2))?;
            ip(&format!("-n {name}n{i} link set eth0 up"))?;
            ip(&format!("-n {name}n{i} link set lo up"))?;
        }
        Ok(())
    }

    /// Where the members are. `etcdctl` asks from the last one's side, which is never cut off from itself.
    pub(super) fn places(&self) -> Places {
        let within = |i: usize| -> Vec<String> {
            ["ip", "netns", "exec", &format!("{}n{i}", self.name)].map(str::to_owned).to_vec()
        };
        let mut ctl = within(self.members - 1);
        ctl.push("etcdctl".into());
        Places {
            members: (0..self.members).map(|i| (format!("{}.{}", self.network, i + 2), 2379, 2380)).collect(),
            within: (0..self.members).map(within).collect(),
            program: "etcd".into(),
            scheme: "http",
            more: Vec::new(),
            ctl,
        }
    }

    /// Cuts a member's cable, or mends it.
    pub(super) fn cut(&self, member: usize, is_cut: bool) {
        self.set(&format!("{}m{member}", self.name), is_cut);
    }

    /// Cuts this machine off from all members, or mends that.
    pub(super) fn cut_here(&self, is_cut: bool) {
        self.set(&format!("{}p", self.name), is_cut);
    }

    fn set(&self, cable: &str, is_cut: bool) {
        ip(&format!("link set {cable} {}", if is_cut { "down" } else { "up" })).unwrap();
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let name = &self.name;
        // What was never made cannot be taken away.
        for i in 0..self.members {
            let _ = ip(&format!("netns del {name}n{i}"));
            let _ = ip(&format!("link del {name}m{i}"));
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
