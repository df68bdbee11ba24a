//! gRPC messages: those of hooks and operators, and the answers of hook servers.

use podward_hooks::HookReply;
use podward_lifecycle_grpc::{MAX_REQUEST_BYTES, check_operation, from_resource, to_resource};
use podward_proto::v1;
use podward_proto::v1::hook::Connection;
use prost::Message;
use prost_types::{Duration, Timestamp};

use crate::input::Input;
use crate::outcome::Outcome;
use crate::target::{Format, Target};

/// The longest text of a hook that is kept, in bytes.
const MAX_TEXT: usize = 1024;

/// The kinds of messages. A variant selects one.
const KINDS: [Kind; 10] =
    [register, handled, attached, begin, finish, cancel, deletion, busy, plain::<v1::HandleRequest>, watch];

type Kind = fn(&[u8], &mut Outcome) -> Result<(), String>;

pub(super) fn target() -> Target {
    Target::new("grpc", Format::Protobuf, seeds(), |input| {
        if input.body.len() > MAX_REQUEST_BYTES {
            return Ok(Outcome::of("refused before it is decoded"));
        }
        let mut outcome = Outcome::of(usize::from(input.variant) % KINDS.len());
        KINDS[usize::from(input.variant) % KINDS.len()](&input.body, &mut outcome)?;
        Ok(outcome)
    })
}

/// Decodes a message. What is decoded must survive a second time.
fn decode<M: Message + Default + PartialEq>(body: &[u8], outcome: &mut Outcome) -> Result<Option<M>, String> {
    match M::decode(body) {
        Ok(message) => {
            let bytes = message.encode_to_vec();
            match M::decode(bytes.as_slice()) {
                Ok(again) if again == message || bytes == again.encode_to_vec() => Ok(Some(message)),
                Ok(_) => Err("encoded and decoded again, it is another message".to_owned()),
                Err(error) => Err(format!("encoded, it cannot be decoded again: {error}")),
            }
        }
        Err(error) => {
            outcome.text(&error.to_string());
            Ok(None)
        }
    }
}

fn plain<M: Message + Default + PartialEq>(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    decode::<M>(body, outcome).map(drop)
}

/// A hook that is to be registered, until its selectors are compiled.
fn register(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    let Some(v1::RegisterRequest { hook: Some(hook) }) = decode(body, outcome)? else { return Ok(()) };
    let resource = match to_resource(hook) {
        Ok(resource) => resource,
        Err(status) => {
            outcome.text(status.message());
            return Ok(());
        }
    };
    let compiled = match resource.to_hook() {
        Ok(compiled) => compiled,
        Err(invalid) => {
            outcome.text(&invalid.to_string());
            return Ok(());
        }
    };
    outcome.add((compiled.phases.len(), compiled.is_consumer(), compiled.order.signum()));
    // What is stored is what List returns, and registering that again changes nothing.
    let again = to_resource(from_resource(&resource));
    let again = again.map_err(|status| format!("listed, and refused: {}", status.message()))?;
    if serde_json::to_value(&again.spec).ok() != serde_json::to_value(&resource.spec).ok() {
        return Err("a hook that is listed and registered again is another one".to_owned());
    }
    Ok(())
}

/// The answer of a hook server.
fn handled(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    match decode(body, outcome)? {
        Some(response) => reply(response, outcome),
        None => Ok(()),
    }
}

/// An answer over an attached stream.
fn attached(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    let Some(v1::AttachRequest { message }) = decode(body, outcome)? else { return Ok(()) };
    match message {
        Some(v1::attach_request::Message::Answer(answer)) => match answer.response {
            Some(response) => reply(response, outcome),
            None => Ok(()),
        },
        _ => Ok(()),
    }
}

fn reply(response: v1::HandleResponse, outcome: &mut Outcome) -> Result<(), String> {
    let text = match HookReply::read(response) {
        Ok(HookReply::Done(evidence)) => evidence.detail,
        Ok(HookReply::Pending { message, retry }) => {
            outcome.add(retry.as_secs());
            message
        }
        Ok(HookReply::Rejected { reason, retry }) => {
            outcome.add(retry.is_some());
            reason
        }
        Err(failure) => {
            outcome.text(&failure.text);
            failure.text
        }
    };
    (text.len() <= MAX_TEXT).then_some(()).ok_or_else(|| format!("a text of {} bytes is kept", text.len()))
}

fn operation(id: &str, operation_type: Option<&str>, outcome: &mut Outcome) -> Result<(), String> {
    match check_operation(id, operation_type) {
        Ok(()) if id.len() > 63 => Err(format!("an id of {} bytes is accepted", id.len())),
        Ok(()) => Ok(()),
        Err(status) => {
            outcome.text(status.message());
            Ok(())
        }
    }
}

fn begin(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    let Some(v1::BeginRequest { operation: Some(found), .. }) = decode(body, outcome)? else { return Ok(()) };
    operation(&found.id, Some(&found.r#type), outcome)
}

fn finish(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    let Some(v1::FinishRequest { operation_id, .. }) = decode(body, outcome)? else { return Ok(()) };
    operation(&operation_id, None, outcome)
}

fn cancel(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    let Some(v1::CancelRequest { operation_id, .. }) = decode(body, outcome)? else { return Ok(()) };
    operation(&operation_id, None, outcome)
}

fn deletion(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    plain::<v1::RequestDeletionRequest>(body, outcome)
}

fn busy(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    plain::<v1::BusyRequest>(body, outcome)
}

fn watch(body: &[u8], outcome: &mut Outcome) -> Result<(), String> {
    plain::<v1::WatchRequest>(body, outcome)
}

fn seeds() -> Vec<Input> {
    let selector = v1::LabelSelector {
        match_labels: [("app".to_owned(), "web".to_owned())].into(),
        match_expressions: vec![v1::LabelSelectorRequirement {
            key: "tier".to_owned(),
            operator: "In".to_owned(),
            values: vec!["a".to_owned(), "b".to_owned()],
        }],
    };
    let endpoint = v1::Endpoint {
        url: "https://balancer.example:9443".to_owned(),
        ca_certificates: String::new(),
        server_name: "balancer.example".to_owned(),
    };
    let hook = v1::Hook {
        name: "balancer".to_owned(),
        pod_selector: Some(selector.clone()),
        namespace_selector: Some(selector),
        phases: vec![1, 2, 3, 4, 5],
        operation_types: vec!["update".to_owned()],
        connection: Some(Connection::Endpoint(endpoint)),
        deadline: Some(Duration { seconds: 300, nanos: 0 }),
        deadline_policy: 2,
        failure_policy: 1,
        order: -7,
        prepare_timing: 1,
        complete_timing: 2,
        max_concurrent_calls: 64,
        call_timeout: Some(Duration { seconds: 1, nanos: 500_000_000 }),
        post_check_rejection: 2,
        namespace: String::new(),
    };
    let of_team = v1::Hook { namespace: "shop".to_owned(), namespace_selector: None, ..hook.clone() };
    let attached = v1::Hook { connection: Some(Connection::Attachment(v1::Attachment {})), ..hook.clone() };
    let response = |outcome: v1::Outcome| v1::HandleResponse {
        outcome: outcome.into(),
        message: "3 connections".to_owned(),
        retry_after: Some(Duration { seconds: 2, nanos: 0 }),
        expected_end: Some(Timestamp { seconds: 1_767_261_600, nanos: 7 }),
        evidence: Some(v1::Evidence { level: 1, detail: "read back".to_owned() }),
    };
    let answer =
        v1::AttachAnswer { response: Some(response(v1::Outcome::Done)), ..v1::AttachAnswer::default() };
    let answer = v1::AttachRequest { message: Some(v1::attach_request::Message::Answer(answer)) };
    let pod = Some(v1::PodReference {
        namespace: "shop".to_owned(),
        name: "web-0".to_owned(),
        uid: "7".to_owned(),
    });
    let begun = v1::Operation { id: "a".to_owned(), r#type: "update".to_owned() };
    let id = || "a".to_owned();
    let asked = v1::HandleRequest { operations: vec![begun.clone()], ..v1::HandleRequest::default() };
    vec![
        Input::new(0, v1::RegisterRequest { hook: Some(hook) }.encode_to_vec()),
        Input::new(0, v1::RegisterRequest { hook: Some(attached) }.encode_to_vec()),
        Input::new(0, v1::RegisterRequest { hook: Some(of_team) }.encode_to_vec()),
        Input::new(1, response(v1::Outcome::Done).encode_to_vec()),
        Input::new(1, response(v1::Outcome::Pending).encode_to_vec()),
        Input::new(1, response(v1::Outcome::Rejected).encode_to_vec()),
        Input::new(2, answer.encode_to_vec()),
        Input::new(3, v1::BeginRequest { pod: pod.clone(), operation: Some(begun) }.encode_to_vec()),
        Input::new(4, v1::FinishRequest { pod: pod.clone(), operation_id: id() }.encode_to_vec()),
        Input::new(5, v1::CancelRequest { pod: pod.clone(), operation_id: id() }.encode_to_vec()),
        Input::new(6, v1::RequestDeletionRequest { pod: pod.clone(), ..Default::default() }.encode_to_vec()),
        Input::new(7, v1::BusyRequest { pod: pod.clone(), ..Default::default() }.encode_to_vec()),
        Input::new(8, asked.encode_to_vec()),
        Input::new(9, v1::WatchRequest { pod }.encode_to_vec()),
    ]
}
