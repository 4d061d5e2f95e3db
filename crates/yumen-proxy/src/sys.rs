//! System calls without a safe wrapper. Every unsafe block states its soundness; every function states its
//! gain.
#![allow(unsafe_code)]

use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use socket2::{SockAddr, SockAddrStorage};
use tokio::io::unix::AsyncFd;

/// Sets TCP_DEFER_ACCEPT: the kernel reports a connection with its first bytes, or after `seconds`.
///
/// Measured with a new connection per request: 19.2 us of CPU instead of 28.0 (`make bench`, `close`).
pub(crate) fn defer_accept(socket: BorrowedFd<'_>, seconds: libc::c_int) -> io::Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, seconds)
}

/// Enables control messages with the local address of each datagram, for which no safe wrapper exists. An
/// IPv6 socket receives datagrams of both families, unless it is IPv6-only.
pub(crate) fn enable_packet_info(socket: BorrowedFd<'_>, is_ipv6: bool) -> io::Result<()> {
    if is_ipv6 {
        set_option(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
    }
    set_option(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)
}

/// Returns the number of sent bytes that the peer has not acknowledged (`SIOCOUTQ` of tcp(7)).
pub(crate) fn unacknowledged_bytes(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is open while borrowed, and the kernel writes one `int` to the address of
    // `count`.
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

/// The result of `receive_message`.
pub(crate) struct ReceivedMessage {
    /// Length of the datagram in `room`.
    pub bytes: usize,
    /// Length of the control messages in `control`.
    pub control_bytes: usize,
    /// The address of the sender.
    pub peer: SockAddr,
}

/// Receives a datagram with its control messages in one system call. The safe wrappers do not support address
/// control messages.
pub(crate) fn receive_message(
    socket: BorrowedFd<'_>,
    room: &mut [u8],
    control: &mut [u8],
) -> io::Result<ReceivedMessage> {
    let receive = |name: *mut SockAddrStorage, name_bytes: *mut libc::socklen_t| {
        let mut data = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
        // SAFETY: all zero is a valid `msghdr`. The descriptor is open while borrowed. Each pointer in the
        // message is to memory that this call borrows exclusively, with its length next to it. The kernel
        // writes at most these lengths and returns the lengths written.
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
    // SAFETY: if `receive` succeeds, the kernel has written the address and its length.
    let ((bytes, control_bytes), peer) = unsafe { SockAddr::try_init(receive) }?;
    Ok(ReceivedMessage { bytes, control_bytes, peer })
}

/// A value that owns one descriptor and keeps it open for its life.
pub(crate) trait DescriptorOwner: AsRawFd {}
impl DescriptorOwner for TcpListener {}
impl DescriptorOwner for OwnedFd {}

/// Registers a listening socket or a timer with the reactor without handing over the accept itself: accepted
/// connections stay unregistered until they would block.
///
/// Measured with a new connection per request: 20.1 us of CPU instead of 23.0 (`make bench`, `close`).
pub(crate) fn watch<T: DescriptorOwner>(owner: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: a `DescriptorOwner` owns its descriptor, returns the same one on each call, and lives inside
    // the returned value until that is dropped.
    unsafe { AsyncFd::register(owner) }.map_err(Into::into)
}

/// Minimum time slice that a thread can request from the scheduler, in nanoseconds.
const SLICE_NS: u64 = 100_000;

/// Requests short time slices for the calling thread. Its scheduling deadline is then earlier, so after a
/// wakeup it runs before a thread with a longer slice. Its share of CPU time stays the same.
///
/// Measured with a neighbour on the core that works 0.8 of 4 ms: half of the requests took 72 us instead of
/// 645, 90 % of them 3 ms instead of 6. No effect before Linux 6.12.
pub(crate) fn set_short_slice() -> io::Result<()> {
    set_turns(SLICE_NS, 0)
}

/// Reverts [`set_short_slice`], which the calling thread has inherited, and lowers its priority below
/// workers.
pub(crate) fn take_long_turns() -> io::Result<()> {
    const NICE: i32 = 10;
    // 0 selects the default slice of the scheduler.
    set_turns(0, NICE)
}

/// Sets the time slice of the calling thread and raises its nice value to at least `nice_min`.
fn set_turns(slice_ns: u64, nice_min: i32) -> io::Result<()> {
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    let size = attributes.size;
    // SAFETY: the pointer is to a live structure of the given size, which the kernel fills for the calling
    // thread.
    let known = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0) };
    if known != 0 {
        return Err(io::Error::last_os_error());
    }
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        // Another policy was set on purpose by the operator.
        return Ok(());
    }
    attributes.sched_runtime = slice_ns;
    attributes.sched_nice = attributes.sched_nice.max(nice_min);
    // SAFETY: as above; the kernel only reads the structure, and the call affects the calling thread only.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Prefers huge pages for a memory area, also for pages that are added later.
///
/// Measured with 10 000 routes: 1.035 of the time of one route instead of 1.081, with 100 000: 1.046 instead
/// of 1.115 (`make bench`, `routes-10000`).
pub(crate) fn prefer_huge_pages(area: Range<usize>) -> io::Result<()> {
    advise(area, libc::MADV_HUGEPAGE)
}

/// Converts the pages of an area into huge pages immediately (since Linux 6.1).
pub(crate) fn make_huge_page(area: Range<usize>) -> io::Result<()> {
    // MADV_COLLAPSE of madvise(2), which some C library headers lack.
    advise(area, 25)
}

fn advise(area: Range<usize>, advice: libc::c_int) -> io::Result<()> {
    // SAFETY: none of the advices above changes the contents or the protection of any area; for an unmapped
    // one, the kernel returns an error.
    let result = unsafe { libc::madvise(std::ptr::without_provenance_mut(area.start), area.len(), advice) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns free heap memory to the system. glibc does that by itself only at the end of a heap, musl always.
///
/// Measured with 60 000 bytes each of 3000 heads that were freed: 31 MiB stay instead of 210. Threads that
/// allocate from a heap wait while the call scans it: 2 fragmented heaps of 200 MB, three quarters of them
/// free, took 32 to 115 ms the first time, 1 to 37 ms with nothing new to return.
pub(crate) fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the function takes the locks of the allocator and changes free memory only.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns microseconds of the monotonic clock.
///
/// `Instant` checks and normalizes on subtraction: some 400 instructions more per wakeup of a worker (`make
/// instructions`).
pub(crate) fn monotonic_us() -> u64 {
    let now = monotonic();
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// Returns nanoseconds of the monotonic clock.
pub(crate) fn monotonic_ns() -> u64 {
    let now = monotonic();
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[inline]
fn monotonic() -> libc::timespec {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live `timespec`, which the call fills; it cannot fail for a clock that
    // every kernel has.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now
}

#[cfg(test)]
mod tests {
    #[test]
    fn short_turns_are_asked_for_as_the_kernel_understands_it() {
        for _ in 0..2 {
            let result = super::set_short_slice();
            // A sandbox may forbid the call, but the kernel must accept its arguments.
            let is_forbidden = |error: &std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
            assert!(result.is_ok() || result.as_ref().is_err_and(is_forbidden), "{result:?}");
        }
    }
}
