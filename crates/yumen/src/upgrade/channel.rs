//! Message channel between two processes: JSON documents with a length prefix, and file descriptors.
//!
//! Has no knowledge of the documents.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Maximum length of a document, 512 MiB: fits the counters of a million keys.
const DOCUMENT_BYTES_MAX: usize = 512 << 20;
/// Descriptors per message; SCM_RIGHTS on Linux carries at most 253.
const DESCRIPTORS_PER_MESSAGE: usize = 64;

/// One end of the channel between two processes.
pub(super) struct HandoverChannel {
    stream: UnixStream,
    /// Held while a document is written: several threads send.
    write_lock: Mutex<()>,
}

impl HandoverChannel {
    pub(super) fn new(stream: UnixStream) -> HandoverChannel {
        HandoverChannel { stream, write_lock: Mutex::new(()) }
    }

    /// Sends a document. Fails if the peer has closed, or has not read for 60 s.
    pub(super) fn send(&self, document: &impl Serialize) -> io::Result<()> {
        let text = serde_json::to_vec(document)?;
        let _whole = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.write(&text)
    }

    /// Sends the final document. If that fails, shuts down the write side, so that the peer reads the end of
    /// the stream.
    pub(super) fn send_last(&self, document: &impl Serialize) {
        // Does not wait: a sender that hangs must not keep the process from ending.
        let sent = match self.write_lock.try_lock() {
            Ok(_whole) => {
                serde_json::to_vec(document).map_err(io::Error::from).and_then(|text| self.write(&text))
            }
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        };
        if sent.is_err() {
            self.shut_down_write();
        }
    }

    /// Closes the write side of the stream; reading continues.
    pub(super) fn shut_down_write(&self) {
        // Fails only if the peer has already closed.
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Process id of the peer: the process that created the connection.
    pub(super) fn peer(&self) -> Option<i32> {
        let peer = rustix::net::sockopt::socket_peercred(&self.stream).ok()?;
        Some(peer.pid.as_raw_nonzero().get())
    }

    fn write(&self, text: &[u8]) -> io::Result<()> {
        self.stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        let length = u32::try_from(text.len()).map_err(io::Error::other)?;
        (&self.stream).write_all(&length.to_be_bytes())?;
        (&self.stream).write_all(text)
    }

    /// Receives the next document: `UnexpectedEof` if the peer has closed, `TimedOut` after `until`.
    pub(super) fn receive<T: DeserializeOwned>(&self, until: Option<Instant>) -> io::Result<T> {
        let mut length = [0; 4];
        self.read(&mut length, until)?;
        let length = u32::from_be_bytes(length) as usize;
        // Checked before the allocation.
        if length > DOCUMENT_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a document is too long"));
        }
        let mut text = vec![0; length];
        self.read(&mut text, until)?;
        Ok(serde_json::from_slice(&text)?)
    }

    /// Waits until data, or the end of the stream, can be read; `false` on timeout.
    pub(super) fn is_readable_within(&self, within: Duration) -> bool {
        let mut descriptors = [PollFd::new(&self.stream, PollFlags::IN)];
        let within = Timespec::try_from(within).ok();
        poll(&mut descriptors, within.as_ref()).is_ok_and(|count| count > 0)
    }

    fn read(&self, mut buffer: &mut [u8], until: Option<Instant>) -> io::Result<()> {
        while !buffer.is_empty() {
            self.wait_until(until)?;
            match (&self.stream).read(buffer) {
                // The end of the stream is the exit of the peer.
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => buffer = &mut buffer[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The read timeout of the socket.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn wait_until(&self, until: Option<Instant>) -> io::Result<()> {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // `set_read_timeout` refuses a duration of zero.
        if left == Some(Duration::ZERO) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(left)
    }

    /// Sends descriptors. The peer must know their number.
    pub(super) fn send_descriptors(&self, descriptors: &[OwnedFd]) -> io::Result<()> {
        let borrowed: Vec<BorrowedFd<'_>> = descriptors.iter().map(AsFd::as_fd).collect();
        // More descriptors than one message carries.
        for some in borrowed.chunks(DESCRIPTORS_PER_MESSAGE) {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            if !ancillary.push(SendAncillaryMessage::ScmRights(some)) {
                return Err(io::Error::other("descriptors do not fit into a message"));
            }
            // Ancillary data needs at least one byte of payload (unix(7)).
            sendmsg(&self.stream, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
        }
        Ok(())
    }

    /// Receives `count` descriptors, in the order in which they were sent.
    pub(super) fn receive_descriptors(&self, count: usize, until: Instant) -> io::Result<Vec<OwnedFd>> {
        let mut received = Vec::new();
        while received.len() < count {
            self.wait_until(Some(until))?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_PER_MESSAGE))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut byte = [0];
            let mut payload = [IoSliceMut::new(&mut byte)];
            // CLOEXEC at receipt, so that a concurrent fork and exec does not inherit the descriptors.
            let message = recvmsg(&self.stream, &mut payload, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
            if message.bytes == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let before = received.len();
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                    received.extend(descriptors);
                }
            }
            // A byte without descriptors would loop for ever.
            if received.len() == before {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "descriptors are missing"));
            }
        }
        Ok(received)
    }
}

#[cfg(test)]
mod tests;
