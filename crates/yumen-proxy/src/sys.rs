//! System calls without a safe wrapper. Every block says why it is sound and what it buys.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use socket2::{SockAddr, SockAddrStorage};
use tokio::io::unix::AsyncFd;

/// The kernel then reports a connection when its first bytes are there, or after `seconds`.
///
/// Measured with a new connection per request: 19.2 us of CPU instead of 28.0 (`make bench`, `close`).
pub(crate) fn defer_accept(socket: BorrowedFd<'_>, seconds: libc::c_int) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// The kernel then tells with each datagram to which of its addresses it was sent, which no safe wrapper asks for.
/// A socket of IPv6 gets datagrams of both families, unless it was told otherwise.
pub(crate) fn enable_packet_info(socket: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<()> {
    if is_ipv6 {
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
}

/// How many of the bytes sent on a TCP socket its peer has not acknowledged (`SIOCOUTQ` of tcp(7)).
pub(crate) fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is open while borrowed, and the kernel writes one `int` to where `count` lives.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    if result == 0 { Ok(usize::try_from(count).unwrap_or(0)) } else { Err(io::Error::last_os_error()) }
}

fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the descriptor is open while borrowed, and the pointer and length describe `value`,
    // which lives past the call; the kernel only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What `receive_message` received.
pub(crate) struct ReceivedMessage {
    /// How much of the room is the datagram.
    pub bytes: usize,
    /// How much of the other room is what the kernel tells of it.
    pub control_bytes: usize,
    /// Who sent it.
    pub peer: SockAddr,
}

/// Receives a datagram and what the kernel tells beside it: one call, as without. Safe wrappers exist for kinds of
/// messages that are not those of addresses.
pub(crate) fn receive_message(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
    control: &mut [u8],
) -> io::Result<ReceivedMessage> {
    let receive = |name: *mut SockAddrStorage, name_bytes: *mut libc::socklen_t| {
        let mut data = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: all zero is a valid `msghdr`. The descriptor is open while borrowed; each pointer in the message is
        // to memory that is ours alone during the call, and beside each stands its length. The kernel writes what it
        // received and tells how much that was.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_name = name.cast();
            message.msg_namelen = *name_bytes;
            message.msg_iov = &raw mut data;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = control.len() as _;
            let count = libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0);
            if count < 0 {
                return Err(io::Error::last_os_error());
            }
            *name_bytes = message.msg_namelen;
            Ok((count as usize, message.msg_controllen as usize))
        }
    };
    // SAFETY: the kernel has filled in the address, and said how long it is, wherever `receive` is well.
    let ((bytes, control_bytes), peer) = unsafe { SockAddr::try_init(receive) }?;
    Ok(ReceivedMessage { bytes, control_bytes, peer })
}

/// What owns one descriptor and keeps it open for as long as it lives.
pub(crate) trait DescriptorOwner: AsRawFd {}
impl DescriptorOwner for TcpListener {}
impl DescriptorOwner for OwnedFd {}

/// Registers a listening socket or an alarm with the reactor without handing accepting itself over, so that
/// accepted connections can stay unregistered until they would block.
///
/// Measured with a new connection per request: 20.1 us of CPU instead of 23.0 (`make bench`, `close`).
pub(crate) fn watch<T: DescriptorOwner>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: an `DescriptorOwner` owns its descriptor, gives the same one every time, and lives inside the
    // returned value until that is dropped.
    unsafe { AsyncFd::register(owner) }.map_err(Into::into)
}

/// The least time a thread can ask to run at a stretch, in nanoseconds.
const SLICE_NS: u64 = 100_000;

/// Asks the scheduler to have the calling thread run in short turns, which brings its next turn forward: a thread that
/// wakes is then let in before one that has just begun a longer turn. Its share of the processor stays what it was.
///
/// Measured with a neighbour on the core that works 0.8 of 4 ms: half of the requests took 72 us instead of 645,
/// 90 % of them 3 ms instead of 6. Before Linux 6.12 this changes nothing.
pub(crate) fn set_short_slice() -> io::Result<()> {
    set_turns(SLICE_NS, 0)
}

/// Takes back what [`take_short_turns`] asked for on behalf of the thread that started the calling one, and lowers the
/// share of the processor that it gets beside workers.
pub(crate) fn take_long_turns() -> io::Result<()> {
    const NICE: i32 = 10;
    // 0 is the scheduler's default.
    set_turns(0, NICE)
}

/// Sets the length of a turn and the nice value of the calling thread; it is never made less nice.
fn set_turns(slice_ns: u64, nice_min: i32) -> io::Result<()> {
    let mut wanted = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = wanted.size;
    // SAFETY: the pointer is to a live structure of the size told, which the kernel fills in for the calling thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut wanted, size, 0) };
    if known != 0 {
        return Err(io::Error::last_os_error());
    }
    if wanted.sched_policy != libc::SCHED_OTHER as u32 {
        // Whoever gave it another class knows better.
        return Ok(());
    }
    wanted.sched_runtime = slice_ns;
    wanted.sched_nice = wanted.sched_nice.max(nice_min);
    // SAFETY: as above; the kernel only reads it, and what it sets concerns the calling thread alone.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Says that an area of memory had better be in huge pages, what is added to it from now on too.
///
/// Measured with 10 000 routes: 1.035 of the time of one route instead of 1.081, with 100 000: 1.046 instead of 1.115
/// (`make bench`, `routes-10000`).
pub(crate) fn prefer_huge_pages(area: Range<usize>) -> io::Result<()> {
    advise(area, libc::MADV_HUGEPAGE)
}

/// Puts what is in an area into huge pages now (since Linux 6.1).
pub(crate) fn make_huge_page(area: Range<usize>) -> io::Result<()> {
    // MADV_COLLAPSE of madvise(2), which not every C library's headers have.
    advise(area, 25)
}

fn advise(area: Range<usize>, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: of the advices above none changes what is read from the area or who may, wherever it is; where nothing
    // is, the kernel refuses.
    let result = unsafe { libc::madvise(std::ptr::without_provenance_mut(area.start), area.len(), advice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives the system back what the allocator holds of memory that was freed. glibc does so by itself only at the end of
/// a heap, musl does it always.
///
/// Measured with 60 000 bytes each of 3000 heads that were freed: 31 MiB stay instead of 210. Whoever allocates in a
/// heap waits while it is looked through: 2 heaps of 200 MB in pieces, three quarters of them free, took 32 to 115 ms
/// the first time, 1 to 37 ms where nothing new was to be given back.
pub(crate) fn give_memory_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks and touches only what nobody has.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Microseconds on the system's monotonic clock.
///
/// `Instant` would do, but its subtraction checks and normalizes: some 400 instructions more each time
/// a worker wakes (`make instructions`).
pub(crate) fn monotonic_us() -> u64 {
    let now = monotonic();
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Nanoseconds on the same clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = monotonic();
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[inline]
fn monotonic() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live `timespec`, which the call fills in; it cannot fail for a clock
    // that every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now
}

#[cfg(test)]
mod tests {
    #[test]
    fn short_turns_are_asked_for_as_the_kernel_understands_it() {
        for _ in 0..2 {
            let asked = super::set_short_slice();
            // A sandbox may forbid it; what is asked must be understood.
            let is_forbidden = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
            assert!(asked.is_ok() || asked.as_ref().is_err_and(is_forbidden), "{asked:?}");
        }
    }
}
