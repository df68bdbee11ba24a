//! Attacks by users who may register some hooks.

use std::collections::BTreeMap;
use std::task::Context;

use futures::{StreamExt, stream};
use kube::ResourceExt;
use kube::api::Api;
use podward_api::LifecycleHook;
use podward_proto::v1;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::body::Body;
use tonic::codegen::{Service, http};

use super::fixture::{Authorized, Fixture, TEAMMATES, refusal, within};
use super::hooks::{at, attached, deregister, hook_server, request};

/// The attack: a user who may create hooks replaces the endpoint of a hook that belongs to somebody else.
pub(crate) async fn a_user_who_may_only_create_can_not_replace_a_hook(fixture: &Fixture) {
    let name = "traffic-controller";
    let (mut author, mut creator) = (fixture.registry("author").await, fixture.registry("creator").await);
    let owners = attached(name);
    author.register(request(owners.clone())).await.unwrap();

    let stop = CancellationToken::new();
    let attackers = hook_server(fixture, &stop).await;
    let replacement = v1::Hook { name: name.to_owned(), ..at(attackers, fixture.ca_pem()) };
    let (code, words) = refusal(creator.register(request(replacement.clone())).await);
    assert_eq!(code, Code::PermissionDenied);
    assert!(words.contains("exists with another spec") && words.contains("may not update"), "{words}");
    let stored: Api<LifecycleHook> = Api::all(fixture.client.clone());
    let hook = stored.get(name).await.unwrap();
    assert!(hook.spec.attachment.is_some() && hook.spec.endpoint.is_none(), "{hook:?}");
    // Without a change, the right to create is sufficient, and nothing is written.
    creator.register(request(owners)).await.unwrap();
    assert_eq!(stored.get(name).await.unwrap().resource_version(), hook.resource_version());

    // The right to update allows it. The owner stays, and the last user is recorded.
    let editor = "system:serviceaccount:shop:author";
    creator.register(request(attached("created"))).await.unwrap();
    author.register(request(v1::Hook { order: 7, ..attached("created") })).await.unwrap();
    let listed = author.list(v1::ListRequest::default()).await.unwrap().into_inner().hooks;
    let state = listed.iter().find(|state| state.hook.as_ref().is_some_and(|hook| hook.name == "created"));
    let state = state.unwrap();
    let owner = "system:serviceaccount:shop:creator";
    assert_eq!((state.owner.as_str(), state.registered_by.as_str()), (owner, editor));
    assert_eq!(state.hook.as_ref().unwrap().order, 7);
    for name in [name, "created"] {
        author.deregister(deregister(name)).await.unwrap();
    }
}

/// The attack: a team with a Role in its namespace registers a hook for another namespace, or for all.
pub(crate) async fn a_team_registers_hooks_for_its_own_namespace_only(fixture: &Fixture) {
    let mut team = fixture.registry("team").await;
    let hook = |namespace: &str| v1::Hook { namespace: namespace.to_owned(), ..attached("lb") };
    for namespace in ["", "bank"] {
        let (code, words) = refusal(team.register(request(hook(namespace))).await);
        assert!(code == Code::PermissionDenied && words.contains("may not create"), "{namespace}: {words}");
        let list = v1::ListRequest { namespace: namespace.to_owned() };
        assert_eq!(refusal(team.list(list).await).0, Code::PermissionDenied);
    }
    let selecting = v1::Hook { namespace_selector: Some(v1::LabelSelector::default()), ..hook("shop") };
    let (code, words) = refusal(team.register(request(selecting)).await);
    assert!(code == Code::InvalidArgument && words.contains("namespaceSelector"), "{words}");
    for (namespace, name) in [("shop", "a.lb"), ("shop.bank", "lb"), ("shop/../bank", "lb")] {
        let hook = v1::Hook { name: name.to_owned(), ..hook(namespace) };
        assert_eq!(
            refusal(team.register(request(hook)).await).0,
            Code::InvalidArgument,
            "{namespace} {name}"
        );
    }

    // For its own namespace, it needs no right in the cluster.
    let registered = team.register(request(hook("shop"))).await.unwrap().into_inner().hook.unwrap();
    assert_eq!((registered.namespace.as_str(), registered.name.as_str()), ("shop", "lb"));
    let stored: Api<LifecycleHook> = Api::all(fixture.client.clone());
    let object = stored.get("shop.lb").await.unwrap();
    let compiled = object.to_hook().unwrap();
    let labels = |namespace: &str| [("kubernetes.io/metadata.name".to_owned(), namespace.to_owned())].into();
    let concerns = |namespace| compiled.concerns(&BTreeMap::new(), &labels(namespace));
    assert!(concerns("shop") && !concerns("bank"));

    // Names of hooks for several namespaces are others, and the team has no right to these.
    let mut author = fixture.registry("author").await;
    author.register(request(attached("lb"))).await.unwrap();
    assert_eq!(refusal(team.deregister(deregister("lb")).await).0, Code::PermissionDenied);
    let list = v1::ListRequest { namespace: "shop".to_owned() };
    let listed = team.list(list).await.unwrap().into_inner().hooks;
    let names: Vec<_> = listed.iter().map(|state| state.hook.clone().unwrap()).collect();
    assert!(names.len() == 1 && names[0].namespace == "shop" && names[0].name == "lb", "{names:?}");

    // Its endpoint must not lead to Podward's host. The error does not tell an open port from a closed one.
    let stop = CancellationToken::new();
    let server = hook_server(fixture, &stop).await;
    let mut texts = Vec::new();
    for address in [server, "127.0.0.1:1".parse().unwrap()] {
        let hook = v1::Hook {
            name: "inside".to_owned(),
            namespace: "shop".to_owned(),
            ..at(address, fixture.ca_pem())
        };
        let (code, words) = refusal(team.register(request(hook)).await);
        assert!(
            code == Code::FailedPrecondition && words.contains("no address that hooks of a namespace"),
            "{words}"
        );
        texts.push(words.replace(&address.to_string(), ""));
    }
    assert_eq!(texts[0], texts[1]);

    let own = v1::DeregisterRequest { name: "lb".to_owned(), namespace: "shop".to_owned() };
    team.deregister(own).await.unwrap();
    assert!(
        stored.get_opt("shop.lb").await.unwrap().is_none() && stored.get_opt("lb").await.unwrap().is_some()
    );
    author.deregister(deregister("lb")).await.unwrap();
}

fn hook_of_team(name: &str, expressions: Vec<v1::LabelSelectorRequirement>) -> v1::Hook {
    let selector = v1::LabelSelector { match_expressions: expressions, ..v1::LabelSelector::default() };
    v1::Hook { namespace: "shop".to_owned(), pod_selector: Some(selector), ..attached(name) }
}

/// Returns `count` expressions of about 16 KiB each.
fn large_expressions(count: usize) -> Vec<v1::LabelSelectorRequirement> {
    let values: Vec<_> = (0..256).map(|value| format!("{value:063}")).collect();
    let expression = |key| v1::LabelSelectorRequirement {
        key: format!("key-{key}"),
        operator: "NotIn".to_owned(),
        values: values.clone(),
    };
    (0..count).map(expression).collect()
}

/// The attack: a team registers hooks that cost Podward memory, or time for each pod of others.
pub(crate) async fn hooks_of_a_team_are_small(fixture: &Fixture) {
    let mut team = fixture.registry("team").await;
    let absent = |key| v1::LabelSelectorRequirement {
        key: format!("k{key}"),
        operator: "DoesNotExist".to_owned(),
        values: Vec::new(),
    };
    for (expressions, problem) in [
        ((0..10_000).map(absent).collect(), "matchExpressions has 10000 entries"),
        (large_expressions(5), "the maximum for a hook of one namespace is 65536"),
    ] {
        let (code, words) = refusal(team.register(request(hook_of_team("large", expressions))).await);
        assert!(code == Code::InvalidArgument && words.contains(problem), "{words}");
    }
}

/// The attack: a team registers many hooks at once, so that no request sees the hooks of the others.
pub(crate) async fn a_team_has_no_more_hooks_than_allowed(fixture: &Fixture) {
    const HOOKS: usize = 96;
    let team = fixture.registry("team").await;
    let register = |number: usize| {
        let mut team = team.clone();
        let hook = v1::Hook { namespace: "shop".to_owned(), ..attached(&format!("many-{number}")) };
        async move { team.register(request(hook)).await.err().map(|status| status.code()) }
    };
    let refused: Vec<Code> = stream::iter(0..HOOKS)
        .map(register)
        .buffer_unordered(HOOKS)
        .filter_map(std::future::ready)
        .collect()
        .await;
    let list = v1::ListRequest { namespace: "shop".to_owned() };
    let stored = team.clone().list(list).await.unwrap().into_inner().hooks.len();
    assert!(stored <= 64, "{stored} hooks are stored");
    assert_eq!(refused, vec![Code::ResourceExhausted; HOOKS - stored]);
    for number in 0..HOOKS {
        let (name, namespace) = (format!("many-{number}"), "shop".to_owned());
        team.clone().deregister(v1::DeregisterRequest { name, namespace }).await.unwrap();
    }
}

/// Asks for the hooks of the namespace shop, and does not read the answer.
async fn unread_list(channel: &mut Authorized) -> http::Response<impl Sized + use<>> {
    // ListRequest { namespace: "shop" }, after its length.
    let message = "\0\0\0\0\u{6}\n\u{4}shop".to_owned();
    let request = http::Request::post("/podward.v1.HookRegistry/List")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(message))
        .unwrap();
    let ready = |context: &mut Context<'_>| Service::<http::Request<Body>>::poll_ready(channel, context);
    within(std::future::poll_fn(ready)).await.unwrap();
    within(channel.call(request)).await.unwrap()
}

/// The attack: a team asks for large lists and does not read them, so that they stay in Podward's memory.
pub(crate) async fn lists_that_are_not_read_are_limited(fixture: &Fixture) {
    // Together, they are larger than what a client takes without reading it.
    const HOOKS: usize = 64;
    let team = fixture.registry("team").await;
    let register = |number: usize| {
        let mut team = team.clone();
        let hook = hook_of_team(&format!("large-{number}"), large_expressions(3));
        async move { drop(team.register(request(hook)).await.unwrap()) }
    };
    stream::iter(0..HOOKS).map(register).buffer_unordered(8).collect::<Vec<_>>().await;
    let list = || v1::ListRequest { namespace: "shop".to_owned() };
    let token = fixture.token("shop", "team", &[]).await;
    let mut unread = Vec::new();
    for _ in 0..4 {
        let mut channel = fixture.channel(fixture.other, token.clone());
        let answer = unread_list(&mut channel).await;
        assert_eq!(answer.headers().get("grpc-status"), None, "it is not an error");
        unread.push((channel, answer));
    }
    let (code, words) = refusal(team.clone().list(list()).await);
    assert!(code == Code::ResourceExhausted && words.contains("4 lists of hooks for"), "{words}");
    // Other accounts of the team find no places, and leave those of other users alone.
    for name in TEAMMATES {
        let token = fixture.token("shop", name, &[]).await;
        for _ in 0..4 {
            let mut channel = fixture.channel(fixture.other, token.clone());
            let answer = unread_list(&mut channel).await;
            let code = answer.headers().get("grpc-status").map(|code| code.as_bytes());
            assert_eq!(code, Some(b"8".as_slice()), "{name} receives RESOURCE_EXHAUSTED");
        }
    }
    let all = fixture.registry("author").await.list(v1::ListRequest::default()).await;
    assert!(all.unwrap().into_inner().hooks.len() >= HOOKS);
    drop(unread);
    within(async {
        while team.clone().list(list()).await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for number in 0..HOOKS {
        let (name, namespace) = (format!("large-{number}"), "shop".to_owned());
        team.clone().deregister(v1::DeregisterRequest { name, namespace }).await.unwrap();
    }
}
