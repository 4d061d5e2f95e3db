//! Socket options that accepted connections inherit from their listener.

use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::task::{Context, Waker};

use rustix::net::sockopt::tcp_quickack;

use super::*;

/// Connects a client that has sent a part of a request, and accepts its connection.
fn connect(listening: &TcpListener) -> (TcpStream, TcpStream) {
    let mut client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    client.write_all(b"GET / ").unwrap();
    let mut queued = [PollFd::new(listening, PollFlags::IN)];
    let long = Timespec { tv_sec: 10, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut queued, Some(&long)).unwrap(), 1);
    (client, listening.accept().unwrap().0)
}

fn listening(defer_accept: bool) -> TcpListener {
    let mut settings = ListenerSettings::plain("127.0.0.1:0".parse().unwrap());
    settings.socket.defer_accept = defer_accept;
    bind(&settings, 1).unwrap().remove(0)
}

#[tokio::test]
async fn an_answer_acknowledges_its_request_unless_more_of_it_is_waited_for() {
    let listening = listening(true);
    let (_client, mut accepted) = connect(&listening);
    assert!(!tcp_quickack(&accepted).unwrap(), "the answer will acknowledge");
    let mut room = [0; 16];
    assert_eq!(accepted.read(&mut room).unwrap(), 6);
    accepted.set_nonblocking(true).unwrap();
    let mut tcp = TcpConnection::fresh(accepted);
    tcp.register().unwrap();
    assert!(tcp_quickack(tcp.fd().unwrap()).unwrap(), "the client may hold back the rest until it hears");
}

#[tokio::test]
async fn a_connection_that_was_answered_waits_as_it_is() {
    let listening = listening(true);
    let (_client, accepted) = connect(&listening);
    accepted.set_nonblocking(true).unwrap();
    let mut tcp = TcpConnection::fresh(accepted);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(tcp.write(&mut cx, &[IoSlice::new(b"100")]).is_ready());
    tcp.register().unwrap();
    assert!(!tcp_quickack(tcp.fd().unwrap()).unwrap(), "the client has heard");
    tcp.acknowledge();
    assert!(tcp_quickack(tcp.fd().unwrap()).unwrap(), "more of a later request is waited for");
}

#[test]
fn a_socket_that_is_taken_over_follows_its_new_settings() {
    let listening = listening(true);
    let settings = ListenerSettings::plain(listening.local_addr().unwrap());
    settle(&Socket::from(listening.try_clone().unwrap()), &settings).unwrap();
    let (_client, accepted) = connect(&listening);
    assert!(tcp_quickack(&accepted).unwrap());
}

#[test]
fn a_queued_connection_is_detected() {
    let listening = listening(true);
    assert!(!has_queued_connection(&listening));
    let both = [connect(&listening), connect(&listening)];
    assert!(!has_queued_connection(&listening));
    drop(both);
    let mut client = TcpStream::connect(listening.local_addr().unwrap()).unwrap();
    client.write_all(b"G").unwrap();
    while !has_queued_connection(&listening) {
        std::thread::yield_now();
    }
    drop(listening.accept().unwrap());
    assert!(!has_queued_connection(&listening));
}
