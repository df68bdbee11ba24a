//! The safety properties of a single write, from one stored version of a pod to the next.

use std::collections::BTreeMap;

use podward_core::keys::{self, Key, Stage};
use podward_core::{ConditionStatus, Operations};

use crate::hook_model::TIER;
use crate::model::Stored;

/// Checks what every write must keep, whoever makes it.
pub(crate) fn check(old: &Stored, new: &Stored) -> Result<(), String> {
    for (id, operation) in Operations::parse(&new.labels).iter() {
        if operation.has(Stage::Operate) && !old.has(Stage::Operate, id) {
            let is_off = if new.has_gate {
                new.gate == Some(ConditionStatus::False)
            } else {
                new.gate != Some(ConditionStatus::True)
            };
            if !is_off {
                return Err(format!("operate/{id} with the gate on"));
            }
            if new.view().protection_finalizers().next().is_some() {
                return Err(format!("operate/{id} while a consumer holds the pod"));
            }
        }
    }
    let turned_on = new.gate == Some(ConditionStatus::True) && old.gate != new.gate;
    if turned_on && (old.holds_gate() || new.holds_gate()) {
        return Err("the gate turns on in the middle of an operation".to_owned());
    }
    let is_called_available = |pod: &Stored| pod.labels.contains_key(keys::SERVICE_AVAILABLE);
    if is_called_available(new) && !is_called_available(old) {
        if new.has_gate && new.gate != Some(ConditionStatus::True) {
            return Err("available with the gate off".to_owned());
        }
        if !new.ready || !new.view().has_expected_finalizers() {
            return Err("available too early".to_owned());
        }
    }
    Ok(())
}

/// Checks that a write of Podward, or of a client of the protocol, leaves the labels of others alone.
pub(crate) fn check_others(old: &Stored, new: &Stored) -> Result<(), String> {
    let others = |pod: &Stored| -> BTreeMap<String, String> {
        let is_other = |key: &str| {
            matches!(Key::parse(key), Key::Other) && ![keys::CREATING, keys::TO_DELETE, TIER].contains(&key)
        };
        let labels = pod.labels.iter().filter(|(key, _)| is_other(key));
        labels.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    if others(old) == others(new) { Ok(()) } else { Err("labels of others were touched".to_owned()) }
}
