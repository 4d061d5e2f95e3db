//! Requests that pass the access rules, with a canned response of the authorization service.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use serde_json::Value;
use yumen_base::Now;
use yumen_http::{HeadLimits, parse};
use yumen_plugin::{
    ClientInfo, ConsumerIndex, Exchange, Fields, PhaseSet, PluginInstance, RequestHead, ResponseHead,
    ResponseHeadPhase, Step, StillHost, SubrequestFault, SubrequestResponse, SubrequestSpec,
};

use super::{instances, lines};

/// The response of the service.
pub(crate) enum CannedAnswer {
    /// A status with fields, `name: value`.
    Status(u16, Vec<String>),
    /// None in time.
    Fault,
}

impl CannedAnswer {
    fn response(self) -> Result<SubrequestResponse, SubrequestFault> {
        let CannedAnswer::Status(status, lines) = self else { return Err(SubrequestFault::Timeout) };
        let mut fields = Fields::default();
        for (name, value) in lines.iter().filter_map(|line| line.split_once(": ")) {
            fields.add(name, value.as_bytes());
        }
        Ok(SubrequestResponse { status, fields, body: Some(Vec::new()), ..SubrequestResponse::default() })
    }
}

/// The outcome of a request.
pub(crate) struct JudgedRequest {
    /// The question that the service got.
    pub(crate) asked: Option<SubrequestSpec>,
    /// Status and fields of the refusal.
    pub(crate) refused: Option<(u16, Vec<String>)>,
    /// The fields for the upstream.
    pub(crate) request: Vec<String>,
    /// The fields that the response gets.
    pub(crate) response: Vec<String>,
}

/// Runs the access phase of actions on a request, whose lines end in `\n`.
pub(crate) fn judged(actions: Value, request: &str, answer: CannedAnswer) -> JudgedRequest {
    judged_by(&instances(actions), request, answer)
}

/// [`judged`] for actions that are compiled.
pub(crate) fn judged_by(chain: &[Arc<PluginInstance>], request: &str, answer: CannedAnswer) -> JudgedRequest {
    let (first, rest) = request.split_once('\n').unwrap();
    let text = format!("{first} HTTP/1.1\r\n{}\r\n\r\n", rest.replace('\n', "\r\n"));
    let mut head = RequestHead::default();
    parse::request(text.as_bytes(), 0, &HeadLimits::default(), &mut head).expect("a well-formed request");
    let client = ClientInfo {
        peer: "192.0.2.7:4711".parse().unwrap(),
        local: "198.51.100.1:8080".parse().unwrap(),
        tls: None,
        connection_id: 1,
        listener: Default::default(),
        mapped_port: 0,
    };
    let host = StillHost::answering(answer.response());
    let consumers = ConsumerIndex::default();
    let mut ex = Exchange::new(head, &client, Now::default(), &host, &consumers);
    let mut refused = None;
    for instance in chain.iter().filter(|one| one.phases.has(PhaseSet::ACCESS)) {
        let mut step = instance.plugin.access(&mut ex);
        while let Step::Wait(future) = step {
            let mut future = pin!(future);
            step = match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(next) => next,
                Poll::Pending => panic!("the answer is ready"),
            };
        }
        if let Step::Respond(response) = step {
            refused = Some(response);
            break;
        }
    }
    let mut head = ResponseHead::default();
    head.set_status(refused.as_ref().map_or(200, |response| response.status));
    for instance in chain.iter().filter(|one| one.phases.has(PhaseSet::RESPONSE_HEAD)) {
        instance.plugin.response_head(&mut ResponseHeadPhase::new(&mut ex), &mut head);
    }
    let of_refusal = |response: yumen_plugin::LocalResponse| {
        let is_own = |line: &String| !line.starts_with("Content-Type");
        (response.status, lines(response.fields()).into_iter().filter(is_own).collect())
    };
    let request = lines(&ex.request.fields);
    drop(ex);
    JudgedRequest {
        asked: host.asked.take(),
        refused: refused.map(of_refusal),
        request,
        response: lines(&head.fields),
    }
}
