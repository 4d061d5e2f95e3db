//! Header fields as spans of one block of bytes.
//!
//! Received bytes are copied into the block once, and edits append to it. No field allocates, and unchanged
//! lines are written with one copy.

mod written;

/// A range of bytes in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteSpan {
    /// Position of the first byte.
    pub start: u32,
    /// Position after the last byte.
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

    /// Whether the range is empty.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }
}

macro_rules! known {
    ($($variant:ident = $name:literal),* $(,)?) => {
        /// A field name that the gateway uses itself, recognized once during parsing.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        #[allow(missing_docs)]
        pub enum KnownField { Other, $($variant),* }

        impl KnownField {
            /// The field name in lower case; empty for [`KnownField::Other`].
            pub fn name(self) -> &'static str {
                match self { KnownField::Other => "", $(KnownField::$variant => $name),* }
            }

            const NAMES: &[&str] = &[$($name),*];

            /// All variants with a name, in the order of their discriminants less one.
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

/// Whether `name` equals `known`, a lower-case name, in any case. Compares a word at a time; the last word
/// may overlap the one before.
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
    // Sets the case bit where the known byte is a letter, as `is_same` does.
    name.iter().zip(known).all(|(a, b)| a | (b & 0x40) >> 1 == *b)
}

fn is_same_word(name: &[u8; 8], known: &[u8; 8]) -> bool {
    is_same(u64::from_ne_bytes(*name), u64::from_ne_bytes(*known))
}

/// Letters contain the masked bit and dashes do not; half of that bit is the case bit.
fn is_same(name: u64, known: u64) -> bool {
    name | (known & 0x4040_4040_4040_4040) >> 1 == known
}

/// The slot of a name in the table. Length, first byte and last but one byte distinguish all known names. The
/// case of letters is ignored.
const fn slot_of(name: &[u8]) -> usize {
    let (first, late) = (name[0] | 0x20, name[name.len() - 2] | 0x20);
    (name.len() + first as usize * 3 + late as usize * 33) % SLOTS
}

const SLOTS: usize = 128;

/// The index of the known name in each slot; 255 for an empty slot.
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
    /// The variant for `name`, in any case.
    pub fn of(name: &[u8]) -> KnownField {
        // `slot_of` reads the last but one byte.
        if name.len() < 2 {
            return KnownField::Other;
        }
        let at = SLOT[slot_of(name)] as usize;
        match KnownField::NAMES.get(at) {
            Some(known) if is_folded(name, known.as_bytes()) => KnownField::ALL[at],
            _ => KnownField::Other,
        }
    }

    /// Whether a field may be forwarded as a trailer. Fields for framing, routing, authentication or one
    /// connection may not (RFC 9110 §6.5.1).
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

    /// Whether the gateway writes the field itself, from the connection and the body of a message, so that a value in
    /// settings has no effect. `TE` is not among them: its `trailers` is forwarded to HTTP/2 endpoints.
    pub fn is_of_message(self) -> bool {
        matches!(
            self,
            KnownField::Connection
                | KnownField::ContentLength
                | KnownField::KeepAlive
                | KnownField::ProxyAuthenticate
                | KnownField::ProxyAuthorization
                | KnownField::ProxyConnection
                | KnownField::TransferEncoding
                | KnownField::Upgrade
        )
    }

    /// Whether an application may confuse `name` with this field, see [`Fields::remove_equivalent`].
    pub fn is_alike(self, name: &[u8]) -> bool {
        crate::ascii::is_alike(name, self.name().as_bytes())
    }

    /// The bit of this name in sets.
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// A validated and classified field name, for repeated use.
#[derive(Debug, Clone)]
pub struct FieldName {
    text: Box<str>,
    known: KnownField,
}

impl FieldName {
    /// Creates a name; `None` if `text` is not a token (RFC 9110 §5.1).
    pub fn new(text: &str) -> Option<FieldName> {
        let known = KnownField::of(text.as_bytes());
        crate::ascii::is_token(text.as_bytes()).then(|| FieldName { text: text.into(), known })
    }
}

/// A field that must occur once occurs several times.
pub(crate) struct RepeatedFieldError;

/// One field line of a block.
#[derive(Debug, Clone, Copy)]
pub struct FieldLine {
    name: ByteSpan,
    value: ByteSpan,
    /// End of the line, with its CRLF.
    line_end: u32,
    known: KnownField,
    is_received: bool,
}

impl FieldLine {
    /// The known name of the field.
    pub fn known(&self) -> KnownField {
        self.known
    }

    /// The same line in a block that contains this one's block at `start`.
    fn moved(&self, start: u32) -> FieldLine {
        let (name, value) = (self.name.moved(start), self.value.moved(start));
        FieldLine { name, value, line_end: self.line_end + start, ..*self }
    }

    /// Whether the line is unchanged since it was received.
    pub fn is_received(&self) -> bool {
        self.is_received
    }
}

/// An ordered list of fields in one block.
#[derive(Debug, Default, Clone)]
pub struct Fields {
    pub(crate) block: Vec<u8>,
    pub(crate) list: Vec<FieldLine>,
    /// Bits of the known names that were ever in the list. Most lookups are for absent fields.
    seen: u64,
    /// Bits of the known names that were received more than once.
    repeated: u64,
}

impl Fields {
    /// The number of fields.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Removes all fields and keeps the memory, unless it exceeds `keep_bytes`.
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

    /// Allocated memory, in bytes.
    pub fn capacity(&self) -> usize {
        self.block.capacity() + self.list.capacity() * size_of::<FieldLine>()
    }

    /// The names and values of all fields, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|field| (self.name(field), self.value(field)))
    }

    /// The name of a field of this list, in its original case.
    pub fn name(&self, field: &FieldLine) -> &[u8] {
        field.name.of(&self.block)
    }

    /// The value of a field of this list, without surrounding whitespace.
    pub fn value(&self, field: &FieldLine) -> &[u8] {
        field.value.of(&self.block)
    }

    /// The first value of a known name.
    #[inline]
    pub fn known(&self, known: KnownField) -> Option<&[u8]> {
        if !self.may_have(known) {
            return None;
        }
        let field = self.list.iter().find(|field| field.known == known)?;
        Some(self.value(field))
    }

    /// The first value of a known name that is not as received.
    pub fn written(&self, known: KnownField) -> Option<&[u8]> {
        if !self.may_have(known) {
            return None;
        }
        let field = self.list.iter().find(|field| field.known == known && !field.is_received)?;
        Some(self.value(field))
    }

    /// Whether a known name may be in the list; `false` is certain.
    pub(crate) fn may_have(&self, known: KnownField) -> bool {
        self.seen & known.bit() != 0
    }

    /// Whether any of these names may be in the list; `false` is certain.
    #[inline]
    pub fn may_have_any(&self, names: &[KnownField]) -> bool {
        self.seen & names.iter().fold(0, |bits, name| bits | name.bit()) != 0
    }

    /// The value and position of a known field that may occur once. `Err` if several were received.
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

    /// All values of a known name, in order.
    pub fn all_known(&self, known: KnownField) -> impl Iterator<Item = &[u8]> {
        self.list.iter().filter(move |field| field.known == known).map(|field| self.value(field))
    }

    /// The first value of the fields named `name`, in any case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let known = KnownField::of(name.as_bytes());
        let field = self.list.iter().find(|field| self.is(field, known, name))?;
        Some(self.value(field))
    }

    /// All values of the fields named `name`, in order.
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

    /// Whether a field named `name`, in any case, is present.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Appends a field. Control characters in the value, including line breaks, become spaces, so that no
    /// value can start a new line. A field whose name is not a token (RFC 9110 §5.1) is omitted for the same
    /// reason.
    pub fn add(&mut self, name: &str, value: &[u8]) {
        if crate::ascii::is_token(name.as_bytes()) {
            self.add_token(KnownField::of(name.as_bytes()), name, value);
        }
    }

    fn add_token(&mut self, known: KnownField, name: &str, value: &[u8]) {
        let field = self.write_own(known, name, value);
        // `repeated` stays: only received fields can be ambiguous.
        self.seen |= known.bit();
        self.list.push(field);
    }

    /// Replaces all values of `name` with `value`, at the position of the first. The rules of [`Fields::add`]
    /// apply.
    pub fn set(&mut self, name: &str, value: &[u8]) {
        let known = KnownField::of(name.as_bytes());
        if !self.set_present(known, name, value) {
            self.add(name, value);
        }
    }

    /// [`Fields::set`] for a prepared name.
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
        // The old line stays in the block, where no field refers to it any more.
        self.list[first] = self.write_own(known, name, value);
        self.remove_from(first + 1, known, name);
        true
    }

    /// Removes all fields named `name`; returns whether there were any.
    pub fn remove(&mut self, name: &str) -> bool {
        let known = KnownField::of(name.as_bytes());
        self.remove_from(0, known, name)
    }

    /// Removes all fields that an application may confuse with `name`. CGI and its successors, such as WSGI,
    /// PHP and FastCGI, map every character but letters and digits to `_` (RFC 3875 §4.1.18). For fields that
    /// identify the client only; other fields may differ in this way and have different meanings.
    pub fn remove_equivalent(&mut self, name: &str) -> bool {
        let (before, block) = (self.list.len(), &self.block);
        self.list.retain(|field| !crate::ascii::is_alike(field.name.of(block), name.as_bytes()));
        self.list.len() < before
    }

    /// [`Fields::remove_equivalent`] for several names.
    pub fn remove_all_equivalent(&mut self, names: &[&str]) {
        let block = &self.block;
        let is_one = |name: &[u8]| names.iter().any(|other| crate::ascii::is_alike(name, other.as_bytes()));
        self.list.retain(|field| !is_one(field.name.of(block)));
    }

    /// Makes `value` the only one that an application may find as `name`, see [`Fields::remove_equivalent`].
    pub fn set_only(&mut self, name: &str, value: &[u8]) {
        self.remove_equivalent(name);
        self.add(name, value);
    }

    fn remove_from(&mut self, from: usize, known: KnownField, name: &str) -> bool {
        let before = self.list.len();
        let mut end = from;
        for at in from..before {
            if !self.is(&self.list[at], known, name) {
                self.list[end] = self.list[at];
                end += 1;
            }
        }
        // The bit in `seen` stays: only a missing bit is certain.
        self.list.truncate(end);
        end < before
    }

    /// Appends the fields of `others`, after removing those with the same names.
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

    /// Appends the fields of `others`.
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

    /// Appends a line with an untrusted value, which is sanitized.
    fn write_own(&mut self, known: KnownField, name: &str, value: &[u8]) -> FieldLine {
        let field = self.write_line(known, name.as_bytes(), crate::ascii::trim(value));
        if !crate::ascii::is_value(field.value.of(&self.block)) {
            for byte in &mut self.block[field.value.start as usize..field.value.end as usize] {
                // The tab is a valid byte of values (RFC 9110 §5.5).
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

    /// Appends a received field of HTTP/2 or HTTP/3 as a field line of HTTP/1.
    pub(crate) fn receive(&mut self, known: KnownField, name: &[u8], value: &[u8]) {
        let line = self.write_line(known, name, crate::ascii::trim(value));
        self.push(FieldLine { is_received: true, ..line });
    }

    /// Extends the value of the last received field.
    pub(crate) fn join_last(&mut self, between: &[u8], more: &[u8]) {
        let Some(last) = self.list.last_mut() else { return };
        // The last line ends the block, so its value can grow in place.
        self.block.truncate(last.value.end as usize);
        self.block.extend_from_slice(between);
        self.block.extend_from_slice(crate::ascii::trim(more));
        last.value.end = self.block.len() as u32;
        self.block.extend_from_slice(b"\r\n");
        last.line_end = self.block.len() as u32;
    }

    /// Writes the lines of all fields that `keep` accepts. Lines adjacent in the block are written with one
    /// copy.
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

/// Writes a field line, which must be valid (RFC 9112 §5).
pub fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
