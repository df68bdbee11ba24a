//! The LifecycleHooks for kubectl are valid, and equal to those that the programs register.

use podward_api::LifecycleHook;
use podward_core::hooks::{DeadlinePolicy, FailurePolicy, GateTiming, Hook, HookPhase};
use podward_images::workspace_dir;

fn read(example: &str) -> LifecycleHook {
    let path = workspace_dir().join("deploy/examples").join(example).join("hook.yaml");
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the hook of `podward-core`, without the placeholder of the certificate authority.
fn compile(mut hook: LifecycleHook) -> Hook {
    if let Some(endpoint) = &mut hook.spec.endpoint {
        assert!(
            endpoint.ca_certificates.contains("BEGIN CERTIFICATE"),
            "where the authority goes isn't shown"
        );
        endpoint.ca_certificates.clear();
    }
    hook.to_hook().unwrap()
}

#[test]
fn hooks_for_kubectl_are_right() {
    let (server, attached) = (read("hook-server-rust"), read("hook-server-python"));
    for hook in [&server, &attached] {
        let hook = compile(hook.clone());
        assert_eq!(hook.name, "example-balancer");
        assert_eq!(hook.phases, [HookPhase::Prepare, HookPhase::Complete, HookPhase::Release]);
        let (policy, deadline) = (hook.deadline_policy, hook.deadline_nanoseconds / 1_000_000_000);
        assert_eq!((policy, deadline), (DeadlinePolicy::Hold, 300));
        assert_eq!(hook.failure_policy, FailurePolicy::Fail);
        assert_eq!(
            (hook.prepare_timing, hook.complete_timing),
            (GateTiming::AfterGate, GateTiming::BeforeGate)
        );
    }
    assert!(server.spec.endpoint.is_some() && server.spec.attachment.is_none());
    assert!(attached.spec.attachment.is_some() && attached.spec.endpoint.is_none());
}

/// The example in the guide is valid too.
#[test]
fn the_hook_of_the_document_is_right() {
    let text = std::fs::read_to_string(workspace_dir().join("docs/guides/grpc.md")).unwrap();
    let yaml = text.split("```yaml\n").filter_map(|block| block.split("```").next());
    let yaml = yaml.filter(|yaml| yaml.contains("kind: LifecycleHook")).collect::<Vec<_>>();
    assert_eq!(yaml.len(), 1);
    let hook: LifecycleHook = serde_saphyr::from_str(yaml[0]).unwrap();
    assert!(compile(hook).is_consumer());
}
