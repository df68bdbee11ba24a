//! The spec of a set.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use podward_api::CloneSet;
use podward_api::clone_set::{
    CloneSetHook, CloneSetLifecycle, HookDeadlinePolicy, HookOption, HookOptions, UpdateType,
};
use podward_core::cloneset::{Amount, DeleteHold, Hook, Lifecycle, SetSpec, UpdateKind, keys};

/// Returns what the plan reads of a set.
pub(crate) fn spec_of(set: &CloneSet, options: &HookOptions) -> SetSpec {
    let spec = &set.spec;
    let update = &spec.update_strategy;
    let lifecycle = spec.lifecycle.as_ref().map(|it| lifecycle(it, options));
    let pre_delete = lifecycle.as_ref().and_then(|it| it.pre_delete.as_ref());
    SetSpec {
        replicas: unsigned(spec.replicas),
        update: match update.type_ {
            UpdateType::ReCreate => UpdateKind::Recreate,
            UpdateType::InPlaceIfPossible => UpdateKind::InPlaceIfPossible,
            UpdateType::InPlaceOnly => UpdateKind::InPlaceOnly,
            // `check` rejects another one.
            UpdateType::OnDelete | UpdateType::Unknown => UpdateKind::OnDelete,
        },
        paused: update.paused,
        partition: amount(&update.partition),
        scatter: update.scatter_strategy.iter().map(|it| (it.key.clone(), it.value.clone())).collect(),
        max_unavailable: amount(&update.max_unavailable),
        max_surge: amount(&update.max_surge),
        scale_max_unavailable: spec.scale_strategy.max_unavailable.as_ref().map(amount),
        pods_to_delete: spec.scale_strategy.pods_to_delete.iter().cloned().collect(),
        exclude_preparing_delete: set
            .labels()
            .get(keys::EXCLUDE_PREPARING_DELETE)
            .is_some_and(|it| it == "true"),
        delete_hold: pre_delete.filter(|hook| hook.has_markers()).map(|hook| delete_hold(set, hook)),
        lifecycle,
    }
}

fn lifecycle(lifecycle: &CloneSetLifecycle, options: &HookOptions) -> Lifecycle {
    let hook = |it: &Option<CloneSetHook>, option| it.as_ref().map(|it| hook(it, option));
    Lifecycle {
        pre_normal: hook(&lifecycle.pre_normal, options.pre_normal),
        in_place_update: hook(&lifecycle.in_place_update, options.in_place_update),
        pre_delete: hook(&lifecycle.pre_delete, options.pre_delete),
    }
}

fn delete_hold(set: &CloneSet, hook: &Hook) -> String {
    let (labels, finalizers) = (hook.labels.clone(), hook.finalizers.clone());
    DeleteHold { set: set.name_any(), labels, finalizers }.text()
}

fn hook(hook: &CloneSetHook, option: HookOption) -> Hook {
    Hook {
        labels: hook.labels_handler.clone(),
        finalizers: hook.finalizers_handler.iter().cloned().collect(),
        // Without a marker, nothing is waited for.
        mark_not_ready: hook.mark_pod_not_ready
            && !(hook.labels_handler.is_empty() && hook.finalizers_handler.is_empty()),
        hold_traffic: option.hold_traffic,
        proceeds: option.deadline_policy == HookDeadlinePolicy::Proceed,
    }
}

/// Returns a number of pods. `check` allows no other texts than percentages.
fn amount(amount: &IntOrString) -> Amount {
    match amount {
        IntOrString::Int(count) => Amount::Count(unsigned(*count)),
        IntOrString::String(text) => Amount::Percent(
            text.strip_suffix('%').and_then(|percent| percent.parse().ok()).unwrap_or_default(),
        ),
    }
}

pub(super) fn unsigned(number: i32) -> u32 {
    u32::try_from(number).unwrap_or_default()
}
