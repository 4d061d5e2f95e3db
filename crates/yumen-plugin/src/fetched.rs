//! Values that the control plane fetches for plugins: discovery documents, key sets, secrets.
//!
//! A plugin declares a [`FetchRequest`] while it is built. The control plane fetches, parses and refreshes the value;
//! requests never wait for it, except for a key set whose newest version they lack.

use std::any::Any;
use std::cmp::Ordering as CmpOrdering;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use yumen_base::Now;

use crate::OutboundProxy;

/// Minimum time between two fetches that requests ask for.
const REFRESH_PAUSE_MS: u64 = 10_000;

/// A value to fetch. Equal requests of all objects share one task.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchRequest {
    /// The server.
    pub source: FetchSource,
    /// The parser.
    pub format: FetchFormat,
    /// The effect of a new value.
    pub delivery: FetchDelivery,
    /// The interval.
    pub refresh: FetchRefresh,
}

/// The source of a fetched value.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FetchSource {
    /// A document at a URL.
    Http(Box<HttpFetch>),
    /// A secret of a secret manager.
    Secret(Box<SecretFetch>),
}

/// The place of a value in problems and logs, without credentials: `https://idp.test/jwks`, `vault/1/jack/key`.
impl fmt::Display for FetchSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FetchSource::Http(fetch) => {
                let plain = fetch.url.split(['?', '#']).next().unwrap_or_default();
                match plain.split_once("://").map(|(scheme, rest)| (scheme, rest.split_once('/'), rest)) {
                    Some((scheme, Some((authority, path)), _)) => {
                        // User information ends at the last at sign of the authority (RFC 3986 §3.2.1).
                        let host = authority.rsplit('@').next().unwrap_or_default();
                        write!(f, "{scheme}://{host}/{path}")
                    }
                    Some((scheme, None, rest)) => {
                        write!(f, "{scheme}://{}", rest.rsplit('@').next().unwrap_or_default())
                    }
                    None => f.write_str("an invalid URL"),
                }
            }
            FetchSource::Secret(fetch) => write!(f, "{}/{}", fetch.manager, fetch.key),
        }
    }
}

/// A document at a URL.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HttpFetch {
    /// The URL.
    pub url: String,
    /// Further request fields.
    pub fields: Vec<(String, String)>,
    /// Whether the certificate of the server is verified.
    pub verify: bool,
    /// Trust anchors in PEM instead of those of the system.
    pub ca_pem: Option<String>,
    /// The proxy.
    pub proxy: Option<OutboundProxy>,
    /// Time limit of one fetch in milliseconds.
    pub timeout_ms: u64,
}

impl fmt::Debug for HttpFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Fields may have credentials.
        f.debug_struct("HttpFetch").field("url", &self.url).finish_non_exhaustive()
    }
}

/// A secret of a secret manager.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretFetch {
    /// The manager as `kind/id`: `vault/1`.
    pub manager: String,
    /// Settings of the manager as JSON, with references resolved.
    pub settings: Box<str>,
    /// The key of the reference.
    pub key: String,
}

impl fmt::Debug for SecretFetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The settings have the credentials of the manager.
        f.debug_struct("SecretFetch")
            .field("manager", &self.manager)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

/// A fetched and parsed value.
pub type FetchedValue = Arc<dyn Any + Send + Sync>;

/// The parser of a fetched value. Formats of one name are equal.
#[derive(Clone, Copy)]
pub struct FetchFormat {
    /// The name in metrics and problems: `jwks`.
    pub name: &'static str,
    /// Maximum size in bytes.
    pub bytes_max: usize,
    /// Parses the bytes. Pure; runs on the control runtime.
    pub parse: fn(&[u8]) -> Result<FetchedValue, String>,
}

impl fmt::Debug for FetchFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for FetchFormat {
    fn eq(&self, other: &FetchFormat) -> bool {
        self.name == other.name
    }
}

impl Eq for FetchFormat {}

impl Hash for FetchFormat {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

impl PartialOrd for FetchFormat {
    fn partial_cmp(&self, other: &FetchFormat) -> Option<CmpOrdering> {
        Some(self.cmp(other))
    }
}

impl Ord for FetchFormat {
    fn cmp(&self, other: &FetchFormat) -> CmpOrdering {
        self.name.cmp(other.name)
    }
}

/// The effect of a new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FetchDelivery {
    /// The objects that requested the value are compiled again.
    Rebuild,
    /// Requests read the value from its cell.
    InPlace,
}

/// The interval of refreshes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetchRefresh {
    /// Seconds between two fetches. `Cache-Control: max-age` shortens them, but not below a minute.
    pub interval_s: u32,
}

struct FetchedEntry {
    value: FetchedValue,
    generation: u64,
}

/// The newest value of a [`FetchRequest`], shared by the fetcher and by requests.
#[derive(Default)]
pub struct FetchedCell {
    value: ArcSwapOption<FetchedEntry>,
    /// Asks the fetcher for a fetch; set by the fetcher.
    refresh: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Monotonic time of the last request for a fetch, plus one; 0 before the first.
    asked_ms: AtomicU64,
}

impl fmt::Debug for FetchedCell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value may be a secret.
        f.debug_struct("FetchedCell").field("generation", &self.generation()).finish_non_exhaustive()
    }
}

impl FetchedCell {
    /// The newest value.
    pub fn load(&self) -> Option<FetchedValue> {
        self.value.load().as_ref().map(|entry| entry.value.clone())
    }

    /// The number of the newest value, counted from 1; 0 while there is none.
    pub fn generation(&self) -> u64 {
        self.value.load().as_ref().map_or(0, |entry| entry.generation)
    }

    /// Replaces the value. Called by the fetcher only.
    pub fn store(&self, value: FetchedValue) {
        let generation = self.generation() + 1;
        self.value.store(Some(Arc::new(FetchedEntry { value, generation })));
    }

    /// Removes the value. Called by the fetcher only.
    pub fn clear(&self) {
        self.value.store(None);
    }

    /// Sets the function by which [`FetchedCell::request_refresh`] reaches the fetcher. The first call wins.
    pub fn set_refresh(&self, refresh: impl Fn() + Send + Sync + 'static) {
        // A cell has one fetcher for the life of the process.
        let _ = self.refresh.set(Box::new(refresh));
    }

    /// Asks for a fetch now, at most once in ten seconds. Returns false within that pause, and without a fetcher.
    pub fn request_refresh(&self, now: Now) -> bool {
        let Some(refresh) = self.refresh.get() else { return false };
        let now_ms = now.mono_ms();
        let last_ms = self.asked_ms.load(Ordering::Relaxed);
        if last_ms != 0 && now_ms + 1 < last_ms + REFRESH_PAUSE_MS {
            return false;
        }
        // Of several workers at the same moment, one asks.
        if self.asked_ms.compare_exchange(last_ms, now_ms + 1, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            return false;
        }
        refresh();
        true
    }
}

/// The cells of a process by request. All compilers share them, so a trial sees the values of the configuration in force.
#[derive(Debug, Default)]
pub struct FetchedCells {
    table: Mutex<CellTable>,
}

#[derive(Debug, Default)]
struct CellTable {
    /// Weak, so that a cell ends with the last object or request that holds it.
    cells: BTreeMap<FetchRequest, Weak<FetchedCell>>,
    /// Size at which ended cells are removed.
    sweep_at: usize,
}

impl FetchedCells {
    /// The cell of a request; an empty one for a new request.
    pub fn get(&self, request: &FetchRequest) -> Arc<FetchedCell> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = table.cells.get(request).and_then(Weak::upgrade) {
            return cell;
        }
        if table.cells.len() >= table.sweep_at {
            table.cells.retain(|_, cell| cell.strong_count() > 0);
            table.sweep_at = 2 * table.cells.len().max(64);
        }
        let cell = Arc::<FetchedCell>::default();
        table.cells.insert(request.clone(), Arc::downgrade(&cell));
        cell
    }
}

#[cfg(test)]
mod tests;
