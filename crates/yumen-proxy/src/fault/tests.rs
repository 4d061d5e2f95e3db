use super::*;

#[track_caller]
fn check(kind: Kind, side: Side, status: u16) {
    let (found_side, found_status, word, message) = kind.facts();
    assert_eq!((found_side, found_status), (side, status), "{kind:?}");
    assert!(!word.is_empty() && !message.is_empty());
    let side = format!("{side:?}").to_lowercase();
    assert!(COUNTED.contains(&(side.as_str(), word)), "{kind:?} is counted");
}

#[test]
fn every_fault_has_the_status_its_side_calls_for() {
    check(Kind::Head(HeadError::Malformed("x")), Side::Client, 400);
    check(Kind::Body(BodyError::Size), Side::Client, 400);
    check(Kind::ConnectRefused, Side::Client, 405);
    check(Kind::ClientTimeout, Side::Client, 408);
    check(Kind::BodyTooLarge, Side::Client, 413);
    check(Kind::Head(HeadError::TargetTooLong), Side::Client, 414);
    check(Kind::Head(HeadError::TooLarge), Side::Client, 431);
    check(Kind::Head(HeadError::TooManyFields), Side::Client, 431);
    check(Kind::Head(HeadError::UnknownCoding), Side::Client, 501);
    check(Kind::ClientGone, Side::Client, 499);
    check(Kind::ClientStalled, Side::Client, 499);
    check(Kind::Connect, Side::Upstream, 502);
    check(Kind::UpstreamTls, Side::Upstream, 502);
    check(Kind::RequestedTls, Side::Upstream, 502);
    check(Kind::RequestedName, Side::Upstream, 502);
    check(Kind::UpstreamClosed, Side::Upstream, 502);
    check(Kind::UpstreamBody(BodyError::End), Side::Upstream, 502);
    check(Kind::UpstreamTooLarge, Side::Upstream, 502);
    check(Kind::UnexpectedUpgrade, Side::Upstream, 502);
    check(Kind::UpstreamHead(HeadError::TooLarge), Side::Upstream, 502);
    check(Kind::NoEndpoint, Side::Local, 503);
    check(Kind::Overloaded, Side::Local, 503);
    check(Kind::UpstreamFull, Side::Local, 503);
    check(Kind::UpstreamQueue, Side::Local, 503);
    check(Kind::Deadline, Side::Client, 504);
    check(Kind::Exhausted, Side::Local, 503);
    check(Kind::Unavailable, Side::Local, 503);
    check(Kind::Undecided, Side::Local, 500);
    check(Kind::ConnectTimeout, Side::Upstream, 504);
    check(Kind::SendTimeout, Side::Upstream, 504);
    check(Kind::ReadTimeout, Side::Upstream, 504);
}

#[test]
fn no_other_endpoint_is_asked_for_a_name_that_none_can_have() {
    assert!(!Kind::RequestedName.is_worth_retrying());
    assert!(Kind::RequestedTls.is_worth_retrying());
}

#[test]
fn what_the_gateway_lacks_is_not_held_against_the_endpoint() {
    let kind_of = |errno: rustix::io::Errno| of_connect(&errno.into());
    assert_eq!(kind_of(rustix::io::Errno::MFILE), Kind::Exhausted);
    assert_eq!(kind_of(rustix::io::Errno::ADDRNOTAVAIL), Kind::Exhausted);
    assert_eq!(kind_of(rustix::io::Errno::CONNREFUSED), Kind::Connect);
    assert_eq!(kind_of(rustix::io::Errno::HOSTUNREACH), Kind::Connect);
}
