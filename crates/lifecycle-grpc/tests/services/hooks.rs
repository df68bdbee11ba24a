//! Tests of registered hooks.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use futures::{StreamExt, stream};
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use podward_api::LifecycleHook;
use podward_proto::v1;
use podward_proto::v1::hook::Connection;
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_runtime::grpc::{GrpcLimits, GrpcMetrics, GrpcServer, Services};
use podward_runtime::grpc_client::{Connect, Trust};
use podward_runtime::tls::{CertificateSource, ServingCertificate, TlsMetrics};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::fixture::{Fixture, refusal};

pub(super) fn attached(name: &str) -> v1::Hook {
    v1::Hook {
        name: name.to_owned(),
        phases: vec![v1::Phase::Prepare.into(), v1::Phase::Complete.into()],
        connection: Some(Connection::Attachment(v1::Attachment {})),
        ..v1::Hook::default()
    }
}

pub(super) fn request(hook: v1::Hook) -> v1::RegisterRequest {
    v1::RegisterRequest { hook: Some(hook) }
}

pub(super) fn deregister(name: &str) -> v1::DeregisterRequest {
    v1::DeregisterRequest { name: name.to_owned(), namespace: String::new() }
}

pub(crate) async fn untrusted_callers_are_refused_with_a_reason(fixture: &Fixture) {
    let plain = Connect::new(&format!("https://{}", fixture.other), Trust::file(fixture.ca()))
        .unwrap()
        .lazy()
        .unwrap();
    let (code, words) = refusal(HookRegistryClient::new(plain).list(v1::ListRequest::default()).await);
    assert!(code == Code::Unauthenticated && words.contains("authorization: Bearer"), "{words}");

    let wrong = fixture.file("wrong.token", "eyJhbGciOiJSUzI1NiJ9.e30.c2VjcmV0");
    let mut client = HookRegistryClient::new(fixture.channel(fixture.other, wrong));
    let (code, words) = refusal(client.list(v1::ListRequest::default()).await);
    assert!(code == Code::Unauthenticated && words.contains("doesn't accept the token"), "{words}");
    assert!(!words.contains("c2VjcmV0"), "the token must not be repeated: {words}");

    for audience in ["podward", "somebody-else"] {
        let token = fixture.token("shop", "author", &[audience]).await;
        let mut client = HookRegistryClient::new(fixture.channel(fixture.other, token));
        let answer = client.list(v1::ListRequest::default()).await;
        assert_eq!(answer.is_ok(), audience == "podward", "{answer:?}");
    }

    let mut outsider = fixture.registry("outsider").await;
    let (code, words) = refusal(outsider.register(request(attached("a"))).await);
    assert_eq!(code, Code::PermissionDenied);
    assert!(
        words
            .starts_with("user system:serviceaccount:shop:outsider may not create lifecyclehooks.podward.io"),
        "{words}"
    );
    assert!(words.contains("ask for a ClusterRole"), "{words}");
    for (code, _) in [
        refusal(outsider.deregister(deregister("a")).await),
        refusal(outsider.list(v1::ListRequest::default()).await),
    ] {
        assert_eq!(code, Code::PermissionDenied);
    }
}

/// The API server checks the same rules for hooks that are created with kubectl.
pub(crate) async fn the_api_server_refuses_invalid_resources(fixture: &Fixture) {
    let hooks: Api<serde_hook::Raw> = Api::all(fixture.client.clone());
    let good = json!({"phases": ["Prepare"], "attachment": {}});
    let endpoint = |url: &str| json!({"phases": ["Prepare"], "endpoint": {"url": url}});
    for (name, spec, words) in [
        ("a.b", good.clone(), "DNS label"),
        (
            "lb",
            json!({"phases": ["Prepare"], "attachment": {}, "namespace": "shop"}),
            "<spec.namespace>.<name>",
        ),
        (
            "bank.lb",
            json!({"phases": ["Prepare"], "attachment": {}, "namespace": "shop"}),
            "<spec.namespace>.<name>",
        ),
        (
            "shop.a.b",
            json!({"phases": ["Prepare"], "attachment": {}, "namespace": "shop"}),
            "<spec.namespace>.<name>",
        ),
        ("a.shop.lb", json!({"phases": ["Prepare"], "attachment": {}, "namespace": "a.shop"}), "namespace"),
        (
            "shop.lb",
            json!({"phases": ["Prepare"], "attachment": {}, "namespace": "shop", "namespaceSelector": {}}),
            "must not be set together",
        ),
        ("a", json!({"phases": ["Prepare"]}), "exactly one of endpoint and attachment"),
        (
            "a",
            json!({"phases": ["Prepare"], "attachment": {}, "endpoint": {"url": "https://a:1"}}),
            "exactly one",
        ),
        ("a", json!({"phases": [], "attachment": {}}), "phases"),
        ("a", json!({"phases": ["Prepare", "Prepare"], "attachment": {}}), "Duplicate"),
        ("a", json!({"phases": ["PreCheck", "Release"], "attachment": {}}), "add Prepare or Complete"),
        ("a", json!({"phases": ["Prepare"], "attachment": {}, "deadlineSeconds": 0}), "deadlineSeconds"),
        ("a", json!({"phases": ["Prepare"], "attachment": {}, "order": 1001}), "order"),
        ("a", endpoint("http://a:1"), "endpoint.url"),
        ("a", endpoint("https://a:1/path"), "endpoint.url"),
    ] {
        let raw = serde_hook::Raw::new(name, spec.clone());
        let error = hooks.create(&PostParams::default(), &raw).await.unwrap_err().to_string();
        assert!(error.contains(words), "{spec}: {error}");
    }
    let made = hooks.create(&PostParams::default(), &serde_hook::Raw::new("a", good)).await.unwrap();
    assert_eq!(made.spec["deadlineSeconds"], 300, "defaults are filled in");
    hooks.delete("a", &Default::default()).await.unwrap();

    // The namespace of a hook can't be changed.
    let in_shop = json!({"phases": ["Prepare"], "attachment": {}, "namespace": "shop"});
    hooks.create(&PostParams::default(), &serde_hook::Raw::new("shop.lb", in_shop)).await.unwrap();
    for namespace in [json!(null), json!("bank")] {
        let patch = Patch::Merge(json!({"spec": {"namespace": namespace}}));
        let error = hooks.patch("shop.lb", &PatchParams::default(), &patch).await.unwrap_err().to_string();
        assert!(error.contains("namespace can't be changed"), "{error}");
    }
    hooks.delete("shop.lb", &Default::default()).await.unwrap();
}

mod serde_hook {
    //! A hook whose spec is any JSON.

    use std::borrow::Cow;

    use kube::api::ObjectMeta;
    use kube::core::ClusterResourceScope;
    use serde::{Deserialize, Serialize};
    use serde_json::Value;

    use super::{LifecycleHook, Resource};

    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Raw {
        api_version: String,
        kind: String,
        metadata: ObjectMeta,
        pub(crate) spec: Value,
    }

    impl Raw {
        pub(crate) fn new(name: &str, spec: Value) -> Self {
            let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
            let (api_version, kind) = ("podward.io/v1alpha1".to_owned(), "LifecycleHook".to_owned());
            Self { api_version, kind, metadata, spec }
        }
    }

    impl Resource for Raw {
        type DynamicType = ();
        type Scope = ClusterResourceScope;

        fn kind((): &()) -> Cow<'_, str> {
            LifecycleHook::kind(&())
        }

        fn group((): &()) -> Cow<'_, str> {
            LifecycleHook::group(&())
        }

        fn version((): &()) -> Cow<'_, str> {
            LifecycleHook::version(&())
        }

        fn plural((): &()) -> Cow<'_, str> {
            LifecycleHook::plural(&())
        }

        fn meta(&self) -> &ObjectMeta {
            &self.metadata
        }

        fn meta_mut(&mut self) -> &mut ObjectMeta {
            &mut self.metadata
        }
    }
}

/// Starts a server with TLS and HTTP/2 but no services.
pub(super) async fn hook_server(fixture: &Fixture, stop: &CancellationToken) -> SocketAddr {
    let (cert, key) = fixture.server_certificate();
    let certificates = Arc::new(
        ServingCertificate::load(CertificateSource::files(cert, key), TlsMetrics::default()).unwrap(),
    );
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server =
        GrpcServer::bind(any, certificates, GrpcLimits::default(), GrpcMetrics::default()).await.unwrap();
    let address = server.address();
    tokio::spawn(server.serve(Services::new(podward_proto::FILE_DESCRIPTOR_SET).unwrap(), stop.clone()));
    address
}

pub(super) fn at(address: SocketAddr, ca_certificates: &str) -> v1::Hook {
    let endpoint = v1::Endpoint {
        url: format!("https://{address}"),
        ca_certificates: ca_certificates.to_owned(),
        server_name: "localhost".to_owned(),
    };
    v1::Hook { connection: Some(Connection::Endpoint(endpoint)), ..attached("balancer") }
}

pub(crate) async fn registering_is_idempotent_and_probes_the_endpoint(fixture: &Fixture) {
    let stop = CancellationToken::new();
    let server = hook_server(fixture, &stop).await;
    let mut author = fixture.registry("author").await;
    let stored: Api<LifecycleHook> = Api::all(fixture.client.clone());

    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    let (code, words) = refusal(author.register(request(at(server, &other))).await);
    assert!(code == Code::FailedPrecondition && words.contains("invalid peer certificate"), "{words}");
    let mut misnamed = at(server, fixture.ca_pem());
    let Some(Connection::Endpoint(endpoint)) = &mut misnamed.connection else { unreachable!() };
    endpoint.server_name = "hooks.example".to_owned();
    let (code, words) = refusal(author.register(request(misnamed)).await);
    assert!(code == Code::FailedPrecondition && words.contains("hooks.example"), "{words}");
    assert!(
        stored.get_opt("balancer").await.unwrap().is_none(),
        "a hook that can't be reached is not stored"
    );

    let answer = author.register(request(at(server, fixture.ca_pem()))).await.unwrap().into_inner();
    let hook = answer.hook.unwrap();
    assert_eq!(
        (hook.deadline.unwrap().seconds, hook.max_concurrent_calls),
        (300, 64),
        "defaults are filled in"
    );
    assert!(
        answer.warnings.iter().any(|warning| warning.contains("matches no pod")),
        "{:?}",
        answer.warnings
    );
    let first = stored.get("balancer").await.unwrap();
    assert_eq!(first.annotations()["podward.io/registered-by"], "system:serviceaccount:shop:author");

    // Repeated calls write nothing, also with the returned hook.
    author.register(request(at(server, fixture.ca_pem()))).await.unwrap();
    author.register(request(hook.clone())).await.unwrap();
    assert_eq!(stored.get("balancer").await.unwrap().resource_version(), first.resource_version());

    // The warning depends on whether the hook matches a pod.
    fixture.pod("matched").await;
    let selector = |app: &str| v1::LabelSelector {
        match_labels: [("app".to_owned(), app.to_owned())].into(),
        match_expressions: Vec::new(),
    };
    let matching = v1::Hook { pod_selector: Some(selector("matched")), ..hook.clone() };
    let in_namespace = |name: &str| v1::LabelSelector {
        match_labels: [("kubernetes.io/metadata.name".to_owned(), name.to_owned())].into(),
        match_expressions: Vec::new(),
    };
    for (changed, has_warning) in [
        (matching.clone(), false),
        (v1::Hook { namespace_selector: Some(in_namespace("shop")), ..matching.clone() }, false),
        (v1::Hook { namespace_selector: Some(in_namespace("bank")), ..matching.clone() }, true),
        (v1::Hook { pod_selector: Some(selector("other")), ..matching }, true),
    ] {
        let answer = author.register(request(changed.clone())).await.unwrap().into_inner();
        assert_eq!(answer.hook, Some(changed));
        assert_eq!(!answer.warnings.is_empty(), has_warning, "{:?}", answer.warnings);
    }
    let listed = author.list(v1::ListRequest::default()).await.unwrap().into_inner().hooks;
    assert_eq!(listed.len(), 1);
    let changed = listed[0].hook.as_ref().unwrap();
    assert!(changed.pod_selector.as_ref().unwrap().match_labels["app"] == "other" && !listed[0].reachable);

    stop.cancel();
    let (code, words) = loop {
        // The port of the server closes some time after `cancel`.
        match author.register(request(at(server, fixture.ca_pem()))).await {
            Ok(_) => tokio::task::yield_now().await,
            refused => break refusal(refused),
        }
    };
    assert!(code == Code::FailedPrecondition && words.contains("can't be reached"), "{words}");
    for _ in 0..2 {
        author.deregister(deregister("balancer")).await.unwrap();
    }
    assert!(stored.get_opt("balancer").await.unwrap().is_none());
}

pub(crate) async fn invalid_hooks_are_refused_with_a_reason(fixture: &Fixture) {
    let mut author = fixture.registry("author").await;
    let bad = attached("bad");
    let nothing = v1::LabelSelector {
        match_labels: [("a".to_owned(), "1".to_owned())].into(),
        match_expressions: vec![v1::LabelSelectorRequirement {
            key: "a".to_owned(),
            operator: "DoesNotExist".to_owned(),
            values: vec![],
        }],
    };
    let deadline = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    for (hook, words) in [
        (v1::Hook { name: String::new(), ..bad.clone() }, "metadata.name"),
        (v1::Hook { name: "../../pods".to_owned(), ..bad.clone() }, "metadata.name"),
        (v1::Hook { name: "x".repeat(200_000), ..bad.clone() }, "metadata.name"),
        (v1::Hook { phases: vec![], ..bad.clone() }, "spec.phases"),
        (v1::Hook { phases: vec![0], ..bad.clone() }, "hook.phases: 0"),
        (v1::Hook { phases: vec![99], ..bad.clone() }, "hook.phases: 99"),
        (v1::Hook { connection: None, ..bad.clone() }, "exactly one"),
        (v1::Hook { deadline: deadline(-1, 0), ..bad.clone() }, "hook.deadline"),
        (v1::Hook { deadline: deadline(i64::MAX, 0), ..bad.clone() }, "hook.deadline"),
        (v1::Hook { deadline: deadline(86_401, 0), ..bad.clone() }, "deadlineSeconds"),
        (v1::Hook { call_timeout: deadline(i64::MAX, i32::MAX), ..bad.clone() }, "hook.call_timeout"),
        (v1::Hook { call_timeout: deadline(0, 1), ..bad.clone() }, "hook.call_timeout"),
        (v1::Hook { deadline_policy: 9, ..bad.clone() }, "hook.deadline_policy"),
        (v1::Hook { order: i32::MIN, ..bad.clone() }, "spec.order"),
        (v1::Hook { max_concurrent_calls: u32::MAX, ..bad.clone() }, "spec.maxConcurrentCalls"),
        (v1::Hook { pod_selector: Some(nothing), ..bad.clone() }, "nothing can match"),
    ] {
        let (code, said) = refusal(author.register(request(hook)).await);
        assert!(code == Code::InvalidArgument && said.contains(words), "{words}: {code:?} {said}");
        assert!(said.len() < 1000, "{}", said.len());
    }
    let (code, _) = refusal(author.register(v1::RegisterRequest { hook: None }).await);
    assert_eq!(code, Code::InvalidArgument);
    let (code, _) = refusal(author.deregister(deregister("a/../b")).await);
    assert_eq!(code, Code::InvalidArgument);
    // The message is too long.
    let types = vec!["x".repeat(1000); 300];
    let (code, said) = refusal(author.register(request(v1::Hook { operation_types: types, ..bad })).await);
    assert!(code == Code::OutOfRange && said.contains("too large"), "{code:?} {said}");
}

pub(crate) async fn a_thousand_hooks(fixture: &Fixture) {
    const COUNT: usize = 1000;
    let author = fixture.registry("author").await;
    let register_all = || async {
        let began = Instant::now();
        let register = |number: usize| {
            let mut author = author.clone();
            async move { author.register(request(attached(&format!("hook-{number}")))).await.unwrap() }
        };
        stream::iter(0..COUNT).map(register).buffer_unordered(16).collect::<Vec<_>>().await;
        began.elapsed()
    };
    let stored: Api<LifecycleHook> = Api::all(fixture.client.clone());
    let versions = || async {
        let hooks = stored.list(&Default::default()).await.unwrap().items;
        hooks.into_iter().map(|hook| (hook.name_any(), hook.resource_version())).collect::<BTreeMap<_, _>>()
    };
    let took = register_all().await;
    let first = versions().await;
    let again = register_all().await;
    println!("{COUNT} registrations took {took:?}, and again {again:?}");
    assert_eq!(versions().await, first);
    let listed = author.clone().list(v1::ListRequest::default()).await.unwrap().into_inner().hooks;
    let names: Vec<_> = listed.into_iter().map(|state| state.hook.unwrap().name).collect();
    assert!(names.is_sorted() && names.iter().filter(|name| name.starts_with("hook-")).count() == COUNT);
}
