//! What the hooks of a set do beyond OpenKruise's: an annotation of the set.

use podward_core::cloneset::keys;
use serde::Deserialize;

use super::CloneSet;
use crate::invalid_field::{InvalidField, invalid};
use crate::text::excerpt;

const DEADLINE: u32 = 300;
const LONGEST: u32 = 86_400;

/// Options of the hooks of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct HookOptions {
    /// Of the hook that confirms new pods.
    pub pre_normal: HookOption,
    /// Of the hook that releases pods before an in-place update, and confirms them after it.
    pub in_place_update: HookOption,
    /// Of the hook that releases pods before their deletion.
    pub pre_delete: HookOption,
}

/// Options of a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct HookOption {
    /// How long a pod waits for the hook until the deadline has passed, in seconds: 1 to 86,400.
    pub deadline_seconds: u32,
    /// What happens then.
    pub deadline_policy: HookDeadlinePolicy,
    /// True if the pod is not Ready until the hook has confirmed it.
    pub hold_traffic: bool,
}

impl Default for HookOption {
    fn default() -> Self {
        Self { deadline_seconds: DEADLINE, deadline_policy: HookDeadlinePolicy::Hold, hold_traffic: false }
    }
}

/// The effect of a deadline that passes before a hook has released or confirmed a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum HookDeadlinePolicy {
    /// The pod continues to wait.
    #[default]
    Hold,
    /// The pod continues without the hook.
    Proceed,
}

impl CloneSet {
    /// Returns the options of the hooks of the set.
    ///
    /// # Errors
    /// Fails if the annotation cannot be read.
    pub fn hook_options(&self) -> Result<HookOptions, InvalidField> {
        let annotations = self.metadata.annotations.as_ref();
        let Some(text) = annotations.and_then(|annotations| annotations.get(keys::HOOK_OPTIONS)) else {
            return Ok(HookOptions::default());
        };
        let field = format!("metadata.annotations[{}]", keys::HOOK_OPTIONS);
        let options: HookOptions = match serde_json::from_str(text) {
            Ok(options) => options,
            Err(error) => {
                let problem = format!(
                    "{:?} is not valid: {error}; for example: \
                     {{\"preDelete\": {{\"deadlineSeconds\": 600, \"deadlinePolicy\": \"Proceed\"}}}}",
                    excerpt(text)
                );
                return invalid(field, problem);
            }
        };
        for option in [options.pre_normal, options.in_place_update, options.pre_delete] {
            if !(1..=LONGEST).contains(&option.deadline_seconds) {
                return invalid(field, format!("deadlineSeconds must be from 1 to {LONGEST}"));
            }
        }
        if options.pre_delete.hold_traffic {
            let problem =
                "holdTraffic has no effect on preDelete; set spec.lifecycle.preDelete.markPodNotReady";
            return invalid(field, problem);
        }
        Ok(options)
    }
}
