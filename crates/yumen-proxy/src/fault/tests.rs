use super::*;

/// Side and status of a kind. The match has no wildcard, so a new kind fails to compile until it is added
/// here and to `ALL`.
fn expected(kind: FaultKind) -> (FaultSide, u16) {
    use FaultSide::{Client, Local, Upstream};
    match kind {
        FaultKind::Head(HeadError::Malformed(_))
        | FaultKind::Body(_)
        | FaultKind::NotHttp2
        | FaultKind::NotTls => (Client, 400),
        FaultKind::ConnectRefused => (Client, 405),
        FaultKind::ClientTimeout => (Client, 408),
        FaultKind::BodyTooLarge => (Client, 413),
        FaultKind::Head(HeadError::TargetTooLong) => (Client, 414),
        FaultKind::Head(HeadError::TooLarge) | FaultKind::Head(HeadError::TooManyFields) => (Client, 431),
        FaultKind::ClientGone | FaultKind::ClientStalled => (Client, 499),
        FaultKind::Head(HeadError::UnknownCoding) => (Client, 501),
        FaultKind::Deadline => (Client, 504),
        FaultKind::Head(HeadError::UnknownVersion) => (Client, 505),
        FaultKind::Overloaded
        | FaultKind::NoEndpoint
        | FaultKind::UpstreamFull
        | FaultKind::UpstreamQueue
        | FaultKind::Exhausted
        | FaultKind::Unavailable => (Local, 503),
        FaultKind::Undecided => (Local, 500),
        FaultKind::UnreadableBody => (Client, 400),
        FaultKind::Connect
        | FaultKind::UpstreamTls
        | FaultKind::RequestedTls
        | FaultKind::UpstreamVersion
        | FaultKind::RequestedVersion
        | FaultKind::RequestedName
        | FaultKind::UpstreamClosed
        | FaultKind::UpstreamReset
        | FaultKind::UpstreamHead(_)
        | FaultKind::UpstreamBody(_)
        | FaultKind::UpstreamTooLarge
        | FaultKind::UnexpectedUpgrade => (Upstream, 502),
        FaultKind::ConnectTimeout
        | FaultKind::SendTimeout
        | FaultKind::ReadTimeout
        | FaultKind::AttemptTimeout => (Upstream, 504),
    }
}

const ALL: [FaultKind; 39] = [
    FaultKind::ClientGone,
    FaultKind::ClientStalled,
    FaultKind::Head(HeadError::Malformed("x")),
    FaultKind::Head(HeadError::TargetTooLong),
    FaultKind::Head(HeadError::TooLarge),
    FaultKind::Head(HeadError::TooManyFields),
    FaultKind::Head(HeadError::UnknownCoding),
    FaultKind::Head(HeadError::UnknownVersion),
    FaultKind::Body(BodyError::Size),
    FaultKind::BodyTooLarge,
    FaultKind::ClientTimeout,
    FaultKind::ConnectRefused,
    FaultKind::Deadline,
    FaultKind::NotHttp2,
    FaultKind::NotTls,
    FaultKind::Overloaded,
    FaultKind::NoEndpoint,
    FaultKind::UpstreamFull,
    FaultKind::UpstreamQueue,
    FaultKind::Connect,
    FaultKind::Exhausted,
    FaultKind::ConnectTimeout,
    FaultKind::UpstreamTls,
    FaultKind::RequestedTls,
    FaultKind::UpstreamVersion,
    FaultKind::RequestedVersion,
    FaultKind::RequestedName,
    FaultKind::UpstreamClosed,
    FaultKind::UpstreamReset,
    FaultKind::SendTimeout,
    FaultKind::ReadTimeout,
    FaultKind::AttemptTimeout,
    FaultKind::UpstreamHead(HeadError::TooLarge),
    FaultKind::UpstreamBody(BodyError::End),
    FaultKind::UpstreamTooLarge,
    FaultKind::UnexpectedUpgrade,
    FaultKind::Unavailable,
    FaultKind::Undecided,
    FaultKind::UnreadableBody,
];

#[test]
fn every_fault_is_counted_and_has_the_status_its_side_calls_for() {
    for kind in ALL {
        let (side, status, word, message) = kind.facts();
        assert_eq!((side, status), expected(kind), "{kind:?}");
        assert!(!word.is_empty() && !message.is_empty());
        let side = format!("{side:?}").to_lowercase();
        assert!(COUNTED.contains(&(side.as_str(), word)), "{kind:?} is counted");
    }
    for (_, word) in COUNTED {
        assert!(ALL.iter().any(|kind| kind.facts().2 == word), "{word} is a fault of traffic");
    }
}

#[test]
fn no_other_endpoint_is_asked_for_a_name_that_none_can_have() {
    assert!(!FaultKind::RequestedName.is_worth_retrying());
    assert!(FaultKind::RequestedTls.is_worth_retrying());
}

#[test]
fn local_resource_errors_do_not_count_against_the_endpoint() {
    let kind_of = |errno: rustix::io::Errno| of_connect(&errno.into());
    assert_eq!(kind_of(rustix::io::Errno::MFILE), FaultKind::Exhausted);
    assert_eq!(kind_of(rustix::io::Errno::ADDRNOTAVAIL), FaultKind::Exhausted);
    assert_eq!(kind_of(rustix::io::Errno::CONNREFUSED), FaultKind::Connect);
    assert_eq!(kind_of(rustix::io::Errno::HOSTUNREACH), FaultKind::Connect);
}
