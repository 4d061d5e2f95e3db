//! A Redis cluster: which node has a key, and following it where it moves.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use tokio::sync::Notify;
use yumen_plugin::outbound::{
    RedisAddress, RedisFault, RedisPlace, RedisReply, RedisResult, RedisTarget, ScriptCall,
};
use yumen_plugin::plugin::LocalFuture;

use crate::Tools;
use crate::link::{Link, Seat};
use crate::resp;
use crate::script::{self, By, Digests};

mod slot;

use slot::{SLOTS, slot};

/// How often one question follows a key before it is given up.
const REDIRECTS_MAX: usize = 5;
/// The map is asked for no more often than this.
const REFRESH_MS: u64 = 200;

/// A worker's view of a cluster.
pub(crate) struct Cluster {
    tools: Tools,
    target: Arc<RedisTarget>,
    links: RefCell<HashMap<RedisAddress, Rc<Link>>>,
    /// The node of each slot; empty before the map was seen.
    slots: RefCell<Vec<Option<Rc<Link>>>>,
    is_refreshing: Cell<bool>,
    refreshed: Notify,
    refreshed_ms: Cell<u64>,
    /// Why there was no map the last time.
    fault: RefCell<Option<RedisFault>>,
}

/// Where a server says a key is.
#[derive(Debug, PartialEq, Eq)]
enum Redirect {
    /// From now on.
    Moved(RedisAddress),
    /// For this question.
    Ask(RedisAddress),
}

impl Cluster {
    pub(crate) fn new(tools: &Tools, target: &Arc<RedisTarget>) -> Rc<Cluster> {
        Rc::new(Cluster {
            tools: tools.clone(),
            target: target.clone(),
            links: RefCell::default(),
            slots: RefCell::default(),
            is_refreshing: Cell::new(false),
            refreshed: Notify::new(),
            refreshed_ms: Cell::new(0),
            fault: RefCell::default(),
        })
    }

    /// How many commands wait for their answers.
    pub(crate) fn waiting(&self) -> usize {
        self.links.borrow().values().map(|link| link.waiting()).sum()
    }

    /// Runs a script where its first key is. It is on its way when this returns, unless the map is still
    /// to be asked for.
    pub(crate) fn run(
        self: Rc<Self>,
        digests: Rc<Digests>,
        call: ScriptCall,
    ) -> LocalFuture<'static, RedisResult> {
        let slot = call.keys.first().map_or(0, |key| slot(key));
        let begun = self.link_of(slot).map(|link| {
            let answer = link.send(|out| script::encode(out, &digests, &call, By::Digest));
            (link, answer)
        });
        Box::pin(async move {
            let (link, result) = match begun {
                Some((link, answer)) => (link, answer.await),
                None => {
                    self.refresh().await?;
                    let nobody = || RedisFault::Connect(format!("no node serves slot {slot}"));
                    let link = self.link_of(slot).ok_or_else(nobody)?;
                    let answer = link.send(|out| script::encode(out, &digests, &call, By::Digest));
                    (link, answer.await)
                }
            };
            self.follow(slot, link, result, &digests, &call).await
        })
    }

    /// Follows a key, and tells a node the script's text, until there is an answer.
    async fn follow(
        self: &Rc<Self>,
        slot: usize,
        mut link: Rc<Link>,
        mut result: RedisResult,
        digests: &Digests,
        call: &ScriptCall,
    ) -> RedisResult {
        let mut by = By::Digest;
        for _ in 0..REDIRECTS_MAX {
            let RedisFault::Refused(why) = (match &result {
                Ok(_) => return result,
                Err(fault) => fault,
            }) else {
                // The node may have lost its slots to another.
                self.refresh_soon();
                return result;
            };
            let mut before: &[&str] = &[];
            match redirect(why, &self.target) {
                Some(Redirect::Moved(address)) => {
                    link = self.link_to(&address);
                    self.note(slot, &link);
                    self.refresh_soon();
                }
                Some(Redirect::Ask(address)) => {
                    link = self.link_to(&address);
                    before = &["ASKING"];
                }
                None if script::is_unknown(&result) => by = By::Text,
                None => return result,
            }
            result = link.send_after(before, |out| script::encode(out, digests, call, by)).await;
        }
        result
    }

    fn link_of(&self, slot: usize) -> Option<Rc<Link>> {
        self.slots.borrow().get(slot).cloned().flatten()
    }

    fn link_to(&self, address: &RedisAddress) -> Rc<Link> {
        let mut links = self.links.borrow_mut();
        let make = || Link::new(&self.tools, &self.target, Seat::Server(address.clone()));
        links.entry(address.clone()).or_insert_with(make).clone()
    }

    fn note(&self, slot: usize, link: &Rc<Link>) {
        if let Some(place) = self.slots.borrow_mut().get_mut(slot) {
            *place = Some(link.clone());
        }
    }

    /// Asks for the map beside what goes on, unless that has just been done.
    fn refresh_soon(self: &Rc<Self>) {
        if (self.tools.now)().mono_ms() >= self.refreshed_ms.get() + REFRESH_MS {
            self.refresh_beside();
        }
    }

    /// In a task of its own, so that it goes on when whoever needed it goes away.
    fn refresh_beside(self: &Rc<Self>) {
        if !self.is_refreshing.replace(true) {
            tokio::task::spawn_local(self.clone().ask_for_map());
        }
    }

    /// Waits for the map.
    async fn refresh(self: &Rc<Self>) -> Result<(), RedisFault> {
        let refreshed = self.refreshed.notified();
        self.refresh_beside();
        refreshed.await;
        self.fault.borrow().clone().map_or(Ok(()), Err)
    }

    async fn ask_for_map(self: Rc<Self>) {
        let mut fault = Some(RedisFault::Connect("no node is named".to_owned()));
        for address in self.candidates() {
            let asked = self.link_to(&address);
            match asked.send(|out| resp::text_command(out, &["CLUSTER", "SLOTS"])).await {
                Ok(reply) => match ranges(&reply, &address) {
                    Some(ranges) => {
                        self.install(&ranges);
                        fault = None;
                        break;
                    }
                    None => fault = Some(RedisFault::Connect(format!("{address} has no map of the cluster"))),
                },
                Err(error) => fault = Some(error),
            }
        }
        self.fault.replace(fault);
        self.is_refreshing.set(false);
        self.refreshed_ms.set((self.tools.now)().mono_ms());
        self.refreshed.notify_waiters();
    }

    /// Whom to ask for the map: nodes that answer first, then those named in the settings.
    fn candidates(&self) -> Vec<RedisAddress> {
        let links = self.links.borrow();
        let mut addresses: Vec<(bool, RedisAddress)> =
            links.iter().map(|(address, link)| (link.is_down(), address.clone())).collect();
        if let RedisPlace::Cluster(named) = &self.target.place {
            let new = named.iter().filter(|address| !links.contains_key(*address));
            addresses.extend(new.map(|address| (false, address.clone())));
        }
        addresses.sort();
        addresses.into_iter().map(|(_, address)| address).collect()
    }

    fn install(&self, ranges: &[(usize, usize, RedisAddress)]) {
        let mut slots = vec![None; SLOTS];
        for (first, last, address) in ranges {
            let link = self.link_to(address);
            slots[*first..=*last].fill(Some(link));
        }
        *self.slots.borrow_mut() = slots;
        // Links of nodes that serve nothing any more end once they are idle.
        let is_named = |address: &RedisAddress| match &self.target.place {
            RedisPlace::Cluster(named) => named.contains(address),
            _ => false,
        };
        let serves = |address: &RedisAddress| ranges.iter().any(|(.., serving)| serving == address);
        self.links.borrow_mut().retain(|address, _| serves(address) || is_named(address));
    }
}

/// What a server says of where a key is: `MOVED 3999 127.0.0.1:6381`. A host left out is the one asked,
/// which is one of those named.
fn redirect(why: &str, target: &RedisTarget) -> Option<Redirect> {
    let mut words = why.split(' ');
    let verb = words.next()?;
    let (host, port) = words.nth(1)?.rsplit_once(':')?;
    let named = match &target.place {
        RedisPlace::Cluster(named) => named.first().map(|address| address.host.as_str()),
        _ => None,
    };
    let host = if host.is_empty() { named? } else { host };
    let address = RedisAddress { host: host.to_owned(), port: port.parse().ok()? };
    match verb {
        "MOVED" => Some(Redirect::Moved(address)),
        "ASK" => Some(Redirect::Ask(address)),
        _ => None,
    }
}

/// Slots and their masters, from the answer to `CLUSTER SLOTS`.
fn ranges(reply: &RedisReply, asked: &RedisAddress) -> Option<Vec<(usize, usize, RedisAddress)>> {
    let RedisReply::Array(items) = reply else { return None };
    let ranges: Option<Vec<_>> = items.iter().map(|item| range(item, asked)).collect();
    ranges.filter(|ranges| !ranges.is_empty())
}

fn range(item: &RedisReply, asked: &RedisAddress) -> Option<(usize, usize, RedisAddress)> {
    let RedisReply::Array(parts) = item else { return None };
    let [first, last, RedisReply::Array(master), ..] = parts.as_slice() else { return None };
    let first = usize::try_from(first.integer()?).ok()?;
    let last = usize::try_from(last.integer()?).ok().filter(|last| first <= *last && *last < SLOTS)?;
    let host = match master.first()? {
        RedisReply::Text(host) if !host.is_empty() => String::from_utf8(host.clone()).ok()?,
        // A node that does not know its own address is reached as it was.
        _ => asked.host.clone(),
    };
    let port = u16::try_from(master.get(1)?.integer()?).ok()?;
    Some((first, last, RedisAddress { host, port }))
}

#[cfg(test)]
mod tests;
