//! Header fields as spans of one block of bytes.
//!
//! Received bytes are copied into the block once; edits append to the same block. Nothing is
//! allocated per field, and untouched lines leave in one copy.

/// A range of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteSpan {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl ByteSpan {
    pub(crate) fn new(start: usize, end: usize) -> ByteSpan {
        ByteSpan { start: start as u32, end: end as u32 }
    }

    pub(crate) fn of<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        &block[self.start as usize..self.end as usize]
    }

    fn moved(&self, by: u32) -> ByteSpan {
        ByteSpan { start: self.start + by, end: self.end + by }
    }

    /// Whether it covers no byte.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

macro_rules! known {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// A field name the gateway itself looks at, recognised once while parsing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum KnownField { Other, $($variant),* }

        impl KnownField {
            /// The name in lower case; empty for [`KnownField::Other`].
            pub fn name(self) -> &'static str {
                match self { KnownField::Other => "", $(KnownField::$variant => $name),* }
            }

            const NAMES: &[&str] = &[$($name),*];

            /// All that have a name; each stands at its number less one.
            pub const ALL: &[KnownField] = &[$(KnownField::$variant),*];
        }
    };
}

known! {
    Te = "te",
    Host = "host", Date = "date", Vary = "vary",
    Range = "range",
    Accept = "accept", Cookie = "cookie", Expect = "expect", Origin = "origin", Server = "server",
    ApiKey = "apikey",
    Referer = "referer", Trailer = "trailer", Upgrade = "upgrade",
    Forwarded = "forwarded", XRealIp = "x-real-ip",
    Connection = "connection", KeepAlive = "keep-alive", SetCookie = "set-cookie",
    UserAgent = "user-agent",
    ContentType = "content-type", XRequestId = "x-request-id",
    Authorization = "authorization", ContentLength = "content-length",
    AcceptEncoding = "accept-encoding", XForwardedFor = "x-forwarded-for",
    XYumenDebug = "x-yumen-debug",
    ContentEncoding = "content-encoding", ProxyConnection = "proxy-connection",
    XForwardedHost = "x-forwarded-host", XForwardedPort = "x-forwarded-port",
    WwwAuthenticate = "www-authenticate",
    XForwardedProto = "x-forwarded-proto", TransferEncoding = "transfer-encoding",
    ProxyAuthenticate = "proxy-authenticate", ProxyAuthorization = "proxy-authorization",
}

/// Whether `name` is `known`, which is in lower case, in any case of its own. A word at a time; the last
/// word overlaps the one before.
fn is_folded(name: &[u8], known: &[u8]) -> bool {
    if name.len() != known.len() {
        return false;
    }
    if let (Some(last), Some(known_last)) = (name.last_chunk::<8>(), known.last_chunk::<8>()) {
        let words = name.as_chunks::<8>().0.iter().zip(known.as_chunks::<8>().0);
        return is_same_word(last, known_last) && words.take(name.len() / 8).all(|(a, b)| is_same_word(a, b));
    }
    if let (Some(first), Some(known_first)) = (name.first_chunk::<4>(), known.first_chunk::<4>())
        && let (Some(last), Some(known_last)) = (name.last_chunk::<4>(), known.last_chunk::<4>())
    {
        let wide = |a: &[u8; 4], b: &[u8; 4]| {
            (u64::from(u32::from_ne_bytes(*a)) << 32) | u64::from(u32::from_ne_bytes(*b))
        };
        return is_same(wide(first, last), wide(known_first, known_last));
    }
    name.iter().zip(known).all(|(a, b)| a | (b & 0x40) >> 1 == *b)
}

fn is_same_word(name: &[u8; 8], known: &[u8; 8]) -> bool {
    is_same(u64::from_ne_bytes(*name), u64::from_ne_bytes(*known))
}

/// Letters have the masked bit and dashes do not; half of it is what tells the cases apart.
fn is_same(name: u64, known: u64) -> bool {
    name | (known & 0x4040_4040_4040_4040) >> 1 == known
}

/// Where a name may stand in the table: its length, its first byte and its last but one tell all known
/// names apart. Letters of both cases fall together.
const fn slot_of(name: &[u8]) -> usize {
    let (first, late) = (name[0] | 0x20, name[name.len() - 2] | 0x20);
    (name.len() + first as usize * 3 + late as usize * 33) % SLOTS
}

const SLOTS: usize = 128;

/// The known name of each slot, by its place in the list; 255 where there is none.
static SLOT: [u8; SLOTS] = slots();

const fn slots() -> [u8; SLOTS] {
    let mut slots = [255; SLOTS];
    let mut at = 0;
    while at < KnownField::NAMES.len() {
        let slot = slot_of(KnownField::NAMES[at].as_bytes());
        assert!(slots[slot] == 255, "two known names share a slot: choose other factors");
        slots[slot] = at as u8;
        let name = KnownField::NAMES[at].as_bytes();
        let mut byte = 0;
        while byte < name.len() {
            assert!(name[byte].is_ascii_lowercase() || name[byte] == b'-', "is_folded knows only these");
            byte += 1;
        }
        at += 1;
    }
    slots
}

impl KnownField {
    /// The known name equal to `name` in any case.
    pub fn of(name: &[u8]) -> KnownField {
        if name.len() < 2 {
            return KnownField::Other;
        }
        let at = SLOT[slot_of(name)] as usize;
        match KnownField::NAMES.get(at) {
            Some(known) if is_folded(name, known.as_bytes()) => KnownField::ALL[at],
            _ => KnownField::Other,
        }
    }

    /// Whether a field of this name may be passed on behind a body: not one that says how the message is read
    /// or routed or who sent it, or that is of one connection (RFC 9110 §6.5.1).
    pub fn may_trail(self) -> bool {
        !matches!(
            self,
            KnownField::Authorization
                | KnownField::Connection
                | KnownField::ContentEncoding
                | KnownField::ContentLength
                | KnownField::ContentType
                | KnownField::Cookie
                | KnownField::Expect
                | KnownField::Forwarded
                | KnownField::Host
                | KnownField::KeepAlive
                | KnownField::ProxyAuthenticate
                | KnownField::ProxyAuthorization
                | KnownField::ProxyConnection
                | KnownField::SetCookie
                | KnownField::Te
                | KnownField::Trailer
                | KnownField::TransferEncoding
                | KnownField::Upgrade
                | KnownField::XForwardedFor
                | KnownField::XForwardedHost
                | KnownField::XForwardedPort
                | KnownField::XForwardedProto
                | KnownField::XRealIp
        )
    }

    /// Whether an application may take `name` for this one, see [`Fields::remove_alike`].
    pub fn is_alike(self, name: &[u8]) -> bool {
        crate::ascii::is_alike(name, self.name().as_bytes())
    }

    /// A bit of its own, for sets of known names.
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// A name that was looked at once, for those that set its field again and again.
#[derive(Debug, Clone)]
pub struct FieldName {
    text: Box<str>,
    known: KnownField,
}

impl FieldName {
    /// `None` where it is no token (RFC 9110 §5.1).
    pub fn new(text: &str) -> Option<FieldName> {
        let known = KnownField::of(text.as_bytes());
        crate::ascii::is_token(text.as_bytes()).then(|| FieldName { text: text.into(), known })
    }
}

/// A field that may stand once stands more often.
pub(crate) struct RepeatedFieldError;

/// One field line.
#[derive(Debug, Clone, Copy)]
pub struct FieldLine {
    name: ByteSpan,
    value: ByteSpan,
    /// End of the line, CRLF included.
    line_end: u32,
    known: KnownField,
    is_received: bool,
}

impl FieldLine {
    /// The recognised name.
    pub fn known(&self) -> KnownField {
        self.known
    }

    /// The same in a block that has this one's from `start` on.
    fn moved(&self, start: u32) -> FieldLine {
        let (name, value) = (self.name.moved(start), self.value.moved(start));
        FieldLine { name, value, line_end: self.line_end + start, ..*self }
    }

    /// Whether it stands as the peer sent it.
    pub fn is_received(&self) -> bool {
        self.is_received
    }
}

/// An ordered list of header fields over one block.
#[derive(Debug, Default, Clone)]
pub struct Fields {
    pub(crate) block: Vec<u8>,
    pub(crate) list: Vec<FieldLine>,
    /// Known names that were ever in the list, a bit each: most questions are about absent ones.
    seen: u64,
    /// Those of them that were received more than once.
    repeated: u64,
}

impl Fields {
    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets everything and keeps the memory, unless it grew past `keep_bytes`.
    pub fn clear(&mut self, keep_bytes: usize) {
        self.list.clear();
        (self.seen, self.repeated) = (0, 0);
        self.block.clear();
        if self.block.capacity() > keep_bytes {
            self.block = Vec::new();
        }
        if self.list.capacity() > 256 {
            self.list = Vec::new();
        }
    }

    /// Bytes of memory held.
    pub fn capacity(&self) -> usize {
        self.block.capacity() + self.list.capacity() * size_of::<FieldLine>()
    }

    /// All fields in order, as name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|field| (self.name(field), self.value(field)))
    }

    /// The name of a field of this list, in the case it was received or set in.
    pub fn name(&self, field: &FieldLine) -> &[u8] {
        field.name.of(&self.block)
    }

    /// The value of a field of this list.
    pub fn value(&self, field: &FieldLine) -> &[u8] {
        field.value.of(&self.block)
    }

    /// The first value under a known name.
    #[inline]
    pub fn known(&self, known: KnownField) -> Option<&[u8]> {
        if !self.may_have(known) {
            return None;
        }
        let field = self.list.iter().find(|field| field.known == known)?;
        Some(self.value(field))
    }

    /// Whether a field of a known name was ever added; false means there is none.
    pub(crate) fn may_have(&self, known: KnownField) -> bool {
        self.seen & known.bit() != 0
    }

    /// Whether a field of one of these names was ever added; false means there is none.
    #[inline]
    pub fn may_have_any(&self, names: &[KnownField]) -> bool {
        self.seen & names.iter().fold(0, |bits, name| bits | name.bit()) != 0
    }

    /// The only field of a known name as it was received: its value and where that stands. `Err` if there
    /// were several.
    pub(crate) fn only(&self, known: KnownField) -> Result<Option<(&[u8], ByteSpan)>, RepeatedFieldError> {
        if self.repeated & known.bit() != 0 {
            return Err(RepeatedFieldError);
        }
        if !self.may_have(known) {
            return Ok(None);
        }
        let field = self.list.iter().find(|field| field.known == known);
        Ok(field.map(|field| (self.value(field), field.value)))
    }

    /// All values under a known name, in order.
    pub fn all_known(&self, known: KnownField) -> impl Iterator<Item = &[u8]> {
        self.list.iter().filter(move |field| field.known == known).map(|field| self.value(field))
    }

    /// The first value under `name`, whose case does not matter.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let known = KnownField::of(name.as_bytes());
        let field = self.list.iter().find(|field| self.is(field, known, name))?;
        Some(self.value(field))
    }

    /// All values under `name`, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let known = KnownField::of(name.as_bytes());
        self.list.iter().filter(move |field| self.is(field, known, name)).map(|field| self.value(field))
    }

    fn is(&self, field: &FieldLine, known: KnownField, name: &str) -> bool {
        match known {
            KnownField::Other => {
                field.known == KnownField::Other && self.name(field).eq_ignore_ascii_case(name.as_bytes())
            }
            known => field.known == known,
        }
    }

    /// Whether a field of this name is present.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Adds a field behind all others. Line breaks and other controls in the value become spaces,
    /// so that no value can start a line of its own. A field whose name is not a token (RFC 9110
    /// §5.1) is left out for the same reason.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        if crate::ascii::is_token(name.as_bytes()) {
            self.add_token(KnownField::of(name.as_bytes()), name, value);
        }
    }

    fn add_token(&mut self, known: KnownField, name: &str, value: &[u8]) {
        let field = self.write_own(known, name, value);
        self.seen |= known.bit();
        self.list.push(field);
    }

    /// Makes `value` the only value under `name`, in the place of the first there was. Names and
    /// values are those [`Fields::add`] takes.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        let known = KnownField::of(name.as_bytes());
        if !self.set_present(known, name, value) {
            self.add(name, value);
        }
    }

    /// The same under a name that was looked at before.
    pub fn put(&mut self, name: &FieldName, value: &[u8]) {
        let FieldName { text, known } = name;
        if !self.set_present(*known, text, value) {
            self.add_token(*known, text, value);
        }
    }

    fn set_present(&mut self, known: KnownField, name: &str, value: &[u8]) -> bool {
        let Some(first) = self.list.iter().position(|field| self.is(field, known, name)) else {
            return false;
        };
        self.list[first] = self.write_own(known, name, value);
        self.remove_from(first + 1, known, name);
        true
    }

    /// Removes every field under `name`; says whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        let known = KnownField::of(name.as_bytes());
        self.remove_from(0, known, name)
    }

    /// Removes every field that an application may take for one under `name`: CGI and what follows it, as
    /// WSGI, PHP and FastCGI do, tell names by letters and digits alone and write `_` for the rest (RFC 3875
    /// §4.1.18). For fields that tell who the client is; others may differ in this way and mean different
    /// things.
    pub fn remove_equivalent(&mut self, name: &str) -> bool {
        let (before, block) = (self.list.len(), &self.block);
        self.list.retain(|field| !crate::ascii::is_alike(field.name.of(block), name.as_bytes()));
        self.list.len() < before
    }

    /// Makes `value` the only one that an application may find under `name`, see [`Fields::remove_alike`].
    pub fn set_only(&mut self, name: &str, value: &[u8]) {
        self.remove_equivalent(name);
        self.add(name, value);
    }

    fn remove_from(&mut self, from: usize, known: KnownField, name: &str) -> bool {
        let before = self.list.len();
        let mut kept = from;
        for at in from..before {
            if !self.is(&self.list[at], known, name) {
                self.list[kept] = self.list[at];
                kept += 1;
            }
        }
        self.list.truncate(kept);
        kept < before
    }

    /// Puts the fields of `others` behind these, and takes away those of the same names.
    pub fn replace(&mut self, others: &Fields) {
        let block = &self.block;
        let is_replaced = |field: &FieldLine| {
            let is_same = |other: &FieldLine| match field.known {
                KnownField::Other => other.name.of(&others.block).eq_ignore_ascii_case(field.name.of(block)),
                known => other.known == known,
            };
            others.list.iter().any(is_same)
        };
        self.list.retain(|field| !is_replaced(field));
        self.extend(others);
    }

    /// Puts the fields of `others` behind these.
    pub fn extend(&mut self, others: &Fields) {
        let start = self.append(&others.block).start;
        self.list.extend(others.list.iter().map(|other| other.moved(start)));
        self.seen |= others.seen;
        self.repeated |= others.repeated;
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> ByteSpan {
        let start = self.block.len();
        self.block.extend_from_slice(bytes);
        ByteSpan::new(start, self.block.len())
    }

    /// Writes a line whose value may have come from anywhere.
    fn write_own(&mut self, known: KnownField, name: &str, value: &[u8]) -> FieldLine {
        let field = self.write_line(known, name.as_bytes(), crate::ascii::trim(value));
        if !crate::ascii::is_value(field.value.of(&self.block)) {
            for byte in &mut self.block[field.value.start as usize..field.value.end as usize] {
                if (*byte < 0x20 && *byte != b'\t') || *byte == 0x7f {
                    *byte = b' ';
                }
            }
        }
        field
    }

    fn write_line(&mut self, known: KnownField, name: &[u8], value: &[u8]) -> FieldLine {
        let start = self.block.len();
        write_line(&mut self.block, name, value);
        let value_end = self.block.len() - b"\r\n".len();
        FieldLine {
            name: ByteSpan::new(start, start + name.len()),
            value: ByteSpan::new(value_end - value.len(), value_end),
            line_end: self.block.len() as u32,
            known,
            is_received: false,
        }
    }

    pub(crate) fn push_received(
        &mut self,
        name: ByteSpan,
        value: ByteSpan,
        line_end: usize,
        known: KnownField,
    ) {
        self.push(FieldLine { name, value, line_end: line_end as u32, known, is_received: true });
    }

    fn push(&mut self, received: FieldLine) {
        let bit = received.known.bit();
        self.repeated |= self.seen & bit;
        self.seen |= bit;
        self.list.push(received);
    }

    /// Adds a field that came apart from the others, as the line it would have been.
    pub(crate) fn receive(&mut self, known: KnownField, name: &[u8], value: &[u8]) {
        let line = self.write_line(known, name, crate::ascii::trim(value));
        self.push(FieldLine { is_received: true, ..line });
    }

    /// Puts more behind the value of the field that was received last.
    pub(crate) fn join_last(&mut self, between: &[u8], more: &[u8]) {
        let Some(last) = self.list.last_mut() else { return };
        self.block.truncate(last.value.end as usize);
        self.block.extend_from_slice(between);
        self.block.extend_from_slice(crate::ascii::trim(more));
        last.value.end = self.block.len() as u32;
        self.block.extend_from_slice(b"\r\n");
        last.line_end = self.block.len() as u32;
    }

    /// Writes the lines of all fields that `keep` admits. Those that are neighbours in the block, too, leave
    /// in one copy.
    pub fn write(&self, out: &mut Vec<u8>, mut keep: impl FnMut(&FieldLine) -> bool) {
        let mut run = ByteSpan::default();
        for field in &self.list {
            if !keep(field) {
                continue;
            }
            if field.name.start != run.end {
                out.extend_from_slice(run.of(&self.block));
                run.start = field.name.start;
            }
            run.end = field.line_end;
        }
        out.extend_from_slice(run.of(&self.block));
    }
}

/// Writes one field line.
pub fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
