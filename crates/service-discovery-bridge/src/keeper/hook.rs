//! Registers the hook of a binding and attaches as it.

use std::time::Duration;

use podward_api::DeadlinePolicy;
use podward_proto::v1::attach_request::Message as Up;
use podward_proto::v1::attach_response::Message as Down;
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_proto::v1::{self, AttachRequest, RegisterRequest, hook};
use podward_runtime::retry;
use tokio::sync::{mpsc, watch};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming};

use super::shared::Shared;
use crate::model::{Binding, BindingKey};

/// The maximum time until the lifecycle-controller answers.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout of calls, in seconds.
const CALL_TIMEOUT_SECONDS: i64 = 10;
const MAX_CONCURRENT_CALLS: u32 = 500;

/// A question, and where its answer goes.
pub(crate) struct HookCall {
    pub(crate) id: u64,
    pub(crate) request: v1::HandleRequest,
    /// The trace context of the call, or empty.
    pub(crate) traceparent: String,
    pub(crate) answers: mpsc::Sender<v1::AttachAnswer>,
}

/// The state of the hook, for the status of the binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HookState {
    Attached,
    /// The text says why.
    Detached(String),
}

/// Returns the hook of a binding. Podward asks it about the pods that the binding selects.
pub(crate) fn hook_of(binding: &Binding) -> v1::Hook {
    let spec = &binding.spec;
    let phases = [v1::Phase::Prepare, v1::Phase::Complete, v1::Phase::Release];
    let policy = match spec.deadline_policy {
        DeadlinePolicy::Hold => v1::DeadlinePolicy::Hold,
        DeadlinePolicy::Proceed => v1::DeadlinePolicy::Proceed,
        DeadlinePolicy::Cancel => v1::DeadlinePolicy::Cancel,
    };
    let expressions =
        spec.selector.match_expressions.iter().flatten().map(|requirement| v1::LabelSelectorRequirement {
            key: requirement.key.clone(),
            operator: requirement.operator.clone(),
            values: requirement.values.clone().unwrap_or_default(),
        });
    v1::Hook {
        name: binding.key.name.clone(),
        namespace: binding.key.namespace.clone(),
        pod_selector: Some(v1::LabelSelector {
            match_labels: spec.selector.match_labels.clone().unwrap_or_default().into_iter().collect(),
            match_expressions: expressions.collect(),
        }),
        phases: phases.into_iter().map(i32::from).collect(),
        connection: Some(hook::Connection::Attachment(v1::Attachment {})),
        deadline: Some(prost_types::Duration { seconds: spec.deadline_seconds.into(), nanos: 0 }),
        deadline_policy: policy.into(),
        failure_policy: v1::FailurePolicy::Fail.into(),
        prepare_timing: v1::GateTiming::AfterGate.into(),
        complete_timing: v1::GateTiming::BeforeGate.into(),
        max_concurrent_calls: MAX_CONCURRENT_CALLS,
        call_timeout: Some(prost_types::Duration { seconds: CALL_TIMEOUT_SECONDS, nanos: 0 }),
        ..v1::Hook::default()
    }
}

/// Registers the hook and attaches as it, again and again, and sends the questions to `calls`. Never returns.
pub(crate) async fn attach(
    shared: Shared,
    mut wanted: watch::Receiver<v1::Hook>,
    calls: mpsc::Sender<HookCall>,
    state: watch::Sender<HookState>,
) {
    let mut failures = 0;
    loop {
        let hook = wanted.borrow_and_update().clone();
        let attached = async {
            register(&shared, &hook).await?;
            open(&shared, &hook).await
        };
        let ended = match attached.await {
            Ok((stream, answers)) => {
                failures = 0;
                state.send_replace(HookState::Attached);
                tokio::select! {
                    status = forward(stream, answers, &calls) => status,
                    changed = wanted.changed() => match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    },
                }
            }
            Err(status) => status,
        };
        let hook_name = format!("{}.{}", hook.namespace, hook.name);
        let text = format!("the lifecycle-controller returned {:?}: {}", ended.code(), ended.message());
        tracing::info!(
            hook = hook_name,
            reason = text,
            "the hook is not attached; attaching again with back-off"
        );
        state.send_replace(HookState::Detached(text));
        failures += 1;
        tokio::time::sleep(retry::delay_after(retry::PEER, failures)).await;
    }
}

/// Removes the hook of a binding that is deleted, so that pods do not wait for it.
///
/// # Errors
/// The status of the lifecycle-controller.
pub(crate) async fn deregister(shared: &Shared, key: &BindingKey) -> Result<(), Status> {
    let message = v1::DeregisterRequest { name: key.name.clone(), namespace: key.namespace.clone() };
    let token = shared.token.clone();
    let answer = shared.controller.ask(TIMEOUT, |channel| {
        let mut client = HookRegistryClient::with_interceptor(channel, token.clone());
        let message = message.clone();
        async move { client.deregister(Request::new(message)).await }
    });
    answer.await.map(drop)
}

async fn register(shared: &Shared, hook: &v1::Hook) -> Result<(), Status> {
    let token = shared.token.clone();
    let answer = shared.controller.ask(TIMEOUT, |channel| {
        let mut client = HookRegistryClient::with_interceptor(channel, token.clone());
        let mut request = Request::new(RegisterRequest { hook: Some(hook.clone()) });
        request.set_timeout(TIMEOUT);
        async move { client.register(request).await }
    });
    answer.await.map(drop)
}

type Attached = (Streaming<v1::AttachResponse>, mpsc::Sender<AttachRequest>);

async fn open(shared: &Shared, hook: &v1::Hook) -> Result<Attached, Status> {
    let token = shared.token.clone();
    let answer = shared.controller.ask(TIMEOUT, |channel| {
        let mut client = HookRegistryClient::with_interceptor(channel, token.clone());
        let hello = v1::AttachHello { hook_name: hook.name.clone(), namespace: hook.namespace.clone() };
        async move {
            let (up, requests) = mpsc::channel(1024);
            // The channel has room for it.
            let _ = up.try_send(AttachRequest { message: Some(Up::Hello(hello)) });
            let stream = client.attach(ReceiverStream::new(requests)).await?;
            Ok((stream.into_inner(), up))
        }
    });
    answer.await
}

/// Forwards questions and answers until the stream ends, and returns why it has.
async fn forward(
    mut stream: Streaming<v1::AttachResponse>,
    up: mpsc::Sender<AttachRequest>,
    calls: &mpsc::Sender<HookCall>,
) -> Status {
    let (answers, mut answered) = mpsc::channel::<v1::AttachAnswer>(1024);
    loop {
        tokio::select! {
            message = stream.next() => match message {
                Some(Ok(v1::AttachResponse { message: Some(Down::Call(call)) })) => {
                    let Some(request) = call.request else { continue };
                    let v1::AttachCall { call_id: id, traceparent, .. } = call;
                    let call = HookCall { id, request, traceparent, answers: answers.clone() };
                    if calls.send(call).await.is_err() {
                        return Status::cancelled("the binding is not kept any more");
                    }
                }
                // An answer to a cancelled call is ignored.
                Some(Ok(_)) => {}
                Some(Err(status)) => return status,
                None => return Status::unavailable("the stream has ended"),
            },
            Some(answer) = answered.recv() => {
                if up.send(AttachRequest { message: Some(Up::Answer(answer)) }).await.is_err() {
                    return Status::unavailable("the stream has ended");
                }
            }
        }
    }
}
