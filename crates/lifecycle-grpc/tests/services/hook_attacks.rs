//! Attacks by users who may register some hooks.

use std::collections::BTreeMap;

use kube::ResourceExt;
use kube::api::Api;
use podward_api::LifecycleHook;
use podward_proto::v1;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::fixture::{Fixture, refusal};
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
