use super::*;

/// Side and status of a kind. There is no wildcard: whoever adds a kind says them here and adds it to `ALL`.
fn expected(kind: Kind) -> (Side, u16) {
    use Side::{Client, Local, Upstream};
    match kind {
        Kind::Head(HeadError::Malformed(_)) | Kind::Body(_) | Kind::NotHttp2 | Kind::NotTls => (Client, 400),
        Kind::ConnectRefused => (Client, 405),
        Kind::ClientTimeout => (Client, 408),
        Kind::BodyTooLarge => (Client, 413),
        Kind::Head(HeadError::TargetTooLong) => (Client, 414),
        Kind::Head(HeadError::TooLarge) | Kind::Head(HeadError::TooManyFields) => (Client, 431),
        Kind::ClientGone | Kind::ClientStalled => (Client, 499),
        Kind::Head(HeadError::UnknownCoding) => (Client, 501),
        Kind::Deadline => (Client, 504),
        Kind::Head(HeadError::UnknownVersion) => (Client, 505),
        Kind::Overloaded
        | Kind::NoEndpoint
        | Kind::UpstreamFull
        | Kind::UpstreamQueue
        | Kind::Exhausted
        | Kind::Unavailable => (Local, 503),
        Kind::Undecided => (Local, 500),
        Kind::Connect
        | Kind::UpstreamTls
        | Kind::RequestedTls
        | Kind::UpstreamVersion
        | Kind::RequestedVersion
        | Kind::RequestedName
        | Kind::UpstreamClosed
        | Kind::UpstreamReset
        | Kind::UpstreamHead(_)
        | Kind::UpstreamBody(_)
        | Kind::UpstreamTooLarge
        | Kind::UnexpectedUpgrade => (Upstream, 502),
        Kind::ConnectTimeout | Kind::SendTimeout | Kind::ReadTimeout => (Upstream, 504),
    }
}

const ALL: [Kind; 37] = [
    Kind::ClientGone,
    Kind::ClientStalled,
    Kind::Head(HeadError::Malformed("x")),
    Kind::Head(HeadError::TargetTooLong),
    Kind::Head(HeadError::TooLarge),
    Kind::Head(HeadError::TooManyFields),
    Kind::Head(HeadError::UnknownCoding),
    Kind::Head(HeadError::UnknownVersion),
    Kind::Body(BodyError::Size),
    Kind::BodyTooLarge,
    Kind::ClientTimeout,
    Kind::ConnectRefused,
    Kind::Deadline,
    Kind::NotHttp2,
    Kind::NotTls,
    Kind::Overloaded,
    Kind::NoEndpoint,
    Kind::UpstreamFull,
    Kind::UpstreamQueue,
    Kind::Connect,
    Kind::Exhausted,
    Kind::ConnectTimeout,
    Kind::UpstreamTls,
    Kind::RequestedTls,
    Kind::UpstreamVersion,
    Kind::RequestedVersion,
    Kind::RequestedName,
    Kind::UpstreamClosed,
    Kind::UpstreamReset,
    Kind::SendTimeout,
    Kind::ReadTimeout,
    Kind::UpstreamHead(HeadError::TooLarge),
    Kind::UpstreamBody(BodyError::End),
    Kind::UpstreamTooLarge,
    Kind::UnexpectedUpgrade,
    Kind::Unavailable,
    Kind::Undecided,
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
