//! Tests of attached hook systems.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use podward_proto::v1;
use podward_proto::v1::attach_request::Message;
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming};

use super::fixture::{Authorized, Fixture, refusal, within};

struct Attached {
    up: mpsc::Sender<v1::AttachRequest>,
    down: Streaming<v1::AttachResponse>,
}

fn hello(name: &str) -> Message {
    Message::Hello(v1::AttachHello { hook_name: name.to_owned(), namespace: String::new() })
}

fn hello_in(namespace: &str) -> Message {
    let (hook_name, namespace) = ("attached".to_owned(), namespace.to_owned());
    Message::Hello(v1::AttachHello { hook_name, namespace })
}

fn answer(call_id: u64) -> Message {
    Message::Answer(v1::AttachAnswer { call_id, response: Some(v1::HandleResponse::default()) })
}

async fn attach(
    fixture: &Fixture,
    to: SocketAddr,
    account: &str,
    first: Message,
    on_behalf_of: Option<&'static str>,
) -> Result<Attached, Status> {
    let channel = fixture.channel(to, fixture.token("shop", account, &[]).await);
    attach_on(channel, first, on_behalf_of).await
}

async fn attach_on(
    channel: Authorized,
    first: Message,
    on_behalf_of: Option<&'static str>,
) -> Result<Attached, Status> {
    let mut client = HookRegistryClient::new(channel);
    let (up, requests) = mpsc::channel(4);
    up.send(v1::AttachRequest { message: Some(first) }).await.unwrap();
    let mut request = Request::new(ReceiverStream::new(requests));
    if let Some(user) = on_behalf_of {
        request.metadata_mut().insert("podward-on-behalf-of", user.parse().unwrap());
    }
    let down = within(client.attach(request)).await?.into_inner();
    Ok(Attached { up, down })
}

impl Attached {
    async fn next(&mut self) -> Result<v1::attach_response::Message, Status> {
        Ok(within(self.down.message()).await?.unwrap().message.unwrap())
    }

    async fn send(&self, message: Message) {
        self.up.send(v1::AttachRequest { message: Some(message) }).await.unwrap();
    }
}

/// Waits until the hub has an answer.
async fn until_answered(fixture: &Fixture) {
    within(async {
        while fixture.hub.answers.lock().pop().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

pub(crate) async fn a_replica_that_does_not_lead_relays(fixture: &Fixture) {
    for to in [fixture.leader, fixture.other] {
        let mut attached = attach(fixture, to, "author", hello("attached"), None).await.unwrap();
        assert_eq!(attached.next().await.unwrap(), v1::attach_response::Message::Attached(v1::Attached {}));
        let call = v1::AttachCall { call_id: 7, ..v1::AttachCall::default() };
        assert_eq!(attached.next().await.unwrap(), v1::attach_response::Message::Call(call));
        attached.send(answer(7)).await;
        until_answered(fixture).await;
        // The hub notices that the client has disconnected.
        drop(attached);
        within(fixture.hub.ended.notified()).await;

        let mut invalid = attach(fixture, to, "author", hello("attached"), None).await.unwrap();
        invalid.send(hello("attached")).await;
        let code = loop {
            match invalid.next().await {
                Ok(_) => {}
                refused => break refusal(refused).0,
            }
        };
        assert_eq!(code, Code::InvalidArgument);
        within(fixture.hub.ended.notified()).await;

        let refused = |attached: Result<Attached, Status>| attached.map(|_| ());
        let unknown = refusal(refused(attach(fixture, to, "author", hello("unknown"), None).await));
        assert!(unknown.0 == Code::NotFound && unknown.1.contains("not registered"), "{unknown:?}");
        let first = refusal(refused(attach(fixture, to, "author", answer(1), None).await));
        assert!(first.0 == Code::InvalidArgument && first.1.contains("hello"), "{first:?}");
        let outsider = refusal(refused(attach(fixture, to, "outsider", hello("attached"), None).await));
        assert_eq!(outsider.0, Code::PermissionDenied);
        // A team attaches as the hooks of its namespace.
        drop(attach(fixture, to, "team", hello_in("shop"), None).await.unwrap());
        within(fixture.hub.ended.notified()).await;
        for namespace in ["", "bank"] {
            let team = refusal(refused(attach(fixture, to, "team", hello_in(namespace), None).await));
            assert_eq!(team.0, Code::PermissionDenied, "{team:?}");
        }
        // The attack: to answer in the name of a hook that belongs to somebody else.
        let creator = refusal(refused(attach(fixture, to, "creator", hello("attached"), None).await));
        assert!(creator.0 == Code::PermissionDenied && creator.1.contains("may not update"), "{creator:?}");
        let forged = refusal(refused(attach(fixture, to, "outsider", hello("attached"), Some("jane")).await));
        assert!(forged.0 == Code::PermissionDenied && forged.1.contains("replicas"), "{forged:?}");
    }
}

/// A later version of the interface can have other messages after `hello`.
pub(crate) async fn unknown_messages_are_ignored(fixture: &Fixture) {
    for to in [fixture.leader, fixture.other] {
        let mut attached = attach(fixture, to, "author", hello("attached"), None).await.unwrap();
        assert_eq!(attached.next().await.unwrap(), v1::attach_response::Message::Attached(v1::Attached {}));
        attached.up.send(v1::AttachRequest { message: None }).await.unwrap();
        attached.send(answer(7)).await;
        until_answered(fixture).await;
        drop(attached);
        within(fixture.hub.ended.notified()).await;
    }
}

/// The attack: a user without rights opens streams and sends nothing, to use up the streams of others.
pub(crate) async fn silent_streams_of_a_user_without_rights(fixture: &Fixture) {
    // More than the maximum for one user, which is 64.
    const COUNT: usize = 80;
    let channel = fixture.channel(fixture.leader, fixture.token("shop", "outsider", &[]).await);
    let streams = (0..COUNT).map(|_| {
        let mut client = HookRegistryClient::new(channel.clone());
        let (silent, requests) = mpsc::channel::<v1::AttachRequest>(1);
        tokio::spawn(async move {
            let refused = client.attach(ReceiverStream::new(requests)).await.map(drop);
            drop(silent);
            refused.unwrap_err()
        })
    });
    let mut streams: FuturesUnordered<_> = streams.collect();
    for _ in 64..COUNT {
        let refused = within(streams.next()).await.unwrap().unwrap();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("have not sent `hello`"), "{refused:?}");
    }
    // The others still wait for their first message, and the streams of hooks are free.
    let mut attached = attach(fixture, fixture.leader, "author", hello("attached"), None).await.unwrap();
    assert_eq!(attached.next().await.unwrap(), v1::attach_response::Message::Attached(v1::Attached {}));
    drop(attached);
    within(fixture.hub.ended.notified()).await;
    while let Some(refused) = within(streams.next()).await {
        assert_eq!(refused.unwrap().code(), Code::DeadlineExceeded);
    }
}

/// A user who loses the right to attach must not answer in the name of the hook any longer.
pub(crate) async fn a_revoked_right_ends_an_attached_stream(fixture: &Fixture) {
    let bound = fixture.bind_in_shop("Role", "team", "leaver").await;
    let mut streams = Vec::new();
    for to in [fixture.leader, fixture.other] {
        let mut attached = loop {
            // The API server needs some time to know the binding.
            match attach(fixture, to, "leaver", hello_in("shop"), None).await {
                Ok(attached) => break attached,
                Err(refused) => assert_eq!(refused.code(), Code::PermissionDenied, "{refused:?}"),
            }
        };
        assert_eq!(attached.next().await.unwrap(), v1::attach_response::Message::Attached(v1::Attached {}));
        streams.push(attached);
    }
    let mut stays = attach(fixture, fixture.other, "team", hello_in("shop"), None).await.unwrap();
    fixture.unbind(&bound).await;
    for mut attached in streams {
        let (code, words) = loop {
            match attached.next().await {
                Ok(v1::attach_response::Message::Call(_)) => {}
                ended => break refusal(ended),
            }
        };
        assert_eq!(code, Code::PermissionDenied);
        assert!(words.contains("was revoked") && words.contains("may not update"), "{words}");
    }
    // The stream of another user of the hook continues.
    assert_eq!(stays.next().await.unwrap(), v1::attach_response::Message::Attached(v1::Attached {}));
    stays.send(answer(7)).await;
    within(async {
        while fixture.hub.answers.lock().pop().is_none() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(stays);
    fixture.until_all_detached().await;
}

/// The attack: a team with a Role in one or several namespaces takes the streams of others.
pub(crate) async fn streams_of_the_hooks_of_one_namespace_are_limited(fixture: &Fixture) {
    const COUNT: usize = 128;
    for to in [fixture.leader, fixture.other] {
        let mut streams = Vec::new();
        // The author may attach as the hooks of all namespaces.
        for (account, namespace) in [("team", "shop"), ("author", "bank")] {
            // A client has 250 streams on a connection.
            let channel = fixture.channel(to, fixture.token("shop", account, &[]).await);
            for _ in 0..COUNT {
                streams.push(attach_on(channel.clone(), hello_in(namespace), None).await.unwrap());
            }
            let (code, words) =
                refusal(attach_on(channel.clone(), hello_in(namespace), None).await.map(|_| ()));
            assert_eq!(code, Code::ResourceExhausted);
            let all = namespace == "bank";
            let most = if all { "256 attached streams" } else { "128 attached streams" };
            assert!(words.contains(most) && words.contains("for shop") != all, "{words}");
        }
        let other = refusal(attach(fixture, to, "author", hello_in("third"), None).await.map(|_| ()));
        assert!(other.0 == Code::ResourceExhausted && other.1.contains("256 attached streams"), "{other:?}");
        // A hook that is not limited to the namespace has places.
        let other = attach(fixture, to, "author", hello("attached"), None).await.unwrap();
        drop((streams, other));
        fixture.until_all_detached().await;
    }
}

/// One connection to the leader has 250 streams at most.
pub(crate) async fn a_replica_relays_more_streams_than_one_connection_has(fixture: &Fixture) {
    let token = fixture.token("shop", "author", &[]).await;
    let mut streams = Vec::new();
    for _ in 0..2 {
        // A client, too, has 250 streams on a connection.
        let channel = fixture.channel(fixture.other, token.clone());
        for _ in 0..140 {
            let mut attached = attach_on(channel.clone(), hello("attached"), None).await.unwrap();
            let first = attached.next().await.unwrap();
            assert_eq!(first, v1::attach_response::Message::Attached(v1::Attached {}));
            streams.push(attached);
        }
    }
    drop(streams);
    fixture.until_all_detached().await;
}

/// The attack: a team does not read its streams, so that those of others on the same connection to the leader stand still.
pub(crate) async fn streams_that_are_not_read_do_not_stop_others(fixture: &Fixture) {
    let sent = || fixture.hub.large_calls.load(Ordering::SeqCst);
    let token = fixture.token("shop", "author", &[]).await;
    let mut unread = Vec::new();
    for _ in 0..8 {
        let channel = fixture.channel(fixture.other, token.clone());
        unread.push(attach_on(channel, hello_in("flood"), None).await.unwrap());
    }
    // Until nothing more can be sent on these streams while others begin.
    let (mut before, mut quiet) = (0, 0);
    while quiet < 5 {
        let mut other = attach(fixture, fixture.other, "author", hello("attached"), None).await.unwrap();
        for _ in 0..2 {
            other.next().await.unwrap();
        }
        quiet = if sent() > 0 && sent() == before { quiet + 1 } else { 0 };
        before = sent();
    }
    drop(unread);
    fixture.until_all_detached().await;
}
