//! What the schema of Podward's own definition of CloneSets contains. That of OpenKruise leaves it to webhooks.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::{CloneSet, CloneSetHook, NO_PROGRESS_DEADLINE, UpdateType};
use crate::invalid_field::{InvalidField, invalid};
use crate::lifecycle_hook::{is_label_value, is_part_of_domain};
use crate::text::excerpt;

const MAX_DOMAIN: usize = 253;
const MAX_WEIGHT: i32 = 100;

impl CloneSet {
    /// Checks numbers, the strategies and the markers of hooks.
    ///
    /// # Errors
    /// Returns the first error.
    pub(super) fn check_options(&self) -> Result<(), InvalidField> {
        self.check_numbers()?;
        self.check_amounts()?;
        self.check_priorities()?;
        let hooks = self.spec.lifecycle.iter();
        let hooks = hooks.flat_map(|it| {
            [
                ("preDelete", &it.pre_delete),
                ("inPlaceUpdate", &it.in_place_update),
                ("preNormal", &it.pre_normal),
            ]
        });
        hooks.filter_map(|(name, hook)| Some((name, hook.as_ref()?))).try_for_each(check_hook)
    }

    fn check_numbers(&self) -> Result<(), InvalidField> {
        let spec = &self.spec;
        let in_place = spec.update_strategy.in_place_update_strategy.unwrap_or_default();
        for (field, number) in [
            ("spec.replicas", spec.replicas),
            ("spec.revisionHistoryLimit", spec.revision_history_limit),
            ("spec.minReadySeconds", spec.min_ready_seconds),
            ("spec.updateStrategy.inPlaceUpdateStrategy.gracePeriodSeconds", in_place.grace_period_seconds),
        ] {
            if number < 0 {
                return invalid(field, format!("{number} is not valid; it must be at least 0"));
            }
        }
        match spec.progress_deadline_seconds {
            Some(seconds) if seconds != NO_PROGRESS_DEADLINE && seconds <= spec.min_ready_seconds => {
                let problem = format!(
                    "must be greater than minReadySeconds, because no pod could become available before the deadline; \
                     {NO_PROGRESS_DEADLINE} stands for no deadline"
                );
                invalid("spec.progressDeadlineSeconds", problem)
            }
            _ => Ok(()),
        }
    }

    fn check_amounts(&self) -> Result<(), InvalidField> {
        let update = &self.spec.update_strategy;
        let scale = &self.spec.scale_strategy.max_unavailable;
        if update.type_ == UpdateType::Unknown {
            let problem = "is not supported; it must be ReCreate, InPlaceIfPossible, InPlaceOnly or OnDelete";
            return invalid("spec.updateStrategy.type", problem);
        }
        check_amount("spec.updateStrategy.partition", &update.partition, 100)?;
        check_amount("spec.updateStrategy.maxUnavailable", &update.max_unavailable, u32::MAX)?;
        check_amount("spec.updateStrategy.maxSurge", &update.max_surge, u32::MAX)?;
        if let Some(amount) = scale {
            check_amount("spec.scaleStrategy.maxUnavailable", amount, u32::MAX)?;
        }
        let has_surge = !is_zero(&update.max_surge);
        if self.spec.replicas > 0 && is_zero(&update.max_unavailable) && !has_surge {
            let problem = "maxUnavailable and maxSurge must not both be 0, because no pod could be updated; set one of \
                           them to 1 or more";
            return invalid("spec.updateStrategy.maxUnavailable", problem);
        }
        if update.type_ == UpdateType::InPlaceOnly && has_surge {
            let problem =
                "must be 0 with the type InPlaceOnly, because no other pods are created for an update";
            return invalid("spec.updateStrategy.maxSurge", problem);
        }
        Ok(())
    }

    fn check_priorities(&self) -> Result<(), InvalidField> {
        let Some(strategy) = &self.spec.update_strategy.priority_strategy else { return Ok(()) };
        let field = "spec.updateStrategy.priorityStrategy";
        if !strategy.order_priority.is_empty() && !strategy.weight_priority.is_empty() {
            let problem = "at most one of orderPriority and weightPriority may be set; remove one of them";
            return invalid(field, problem);
        }
        for (index, term) in strategy.weight_priority.iter().enumerate() {
            if !(0..=MAX_WEIGHT).contains(&term.weight) {
                let problem = format!("{} is not valid; it must be from 0 to {MAX_WEIGHT}", term.weight);
                return invalid(format!("{field}.weightPriority[{index}].weight"), problem);
            }
        }
        Ok(())
    }
}

/// Checks a number of pods, or a percentage up to `most`.
fn check_amount(field: &str, amount: &IntOrString, most: u32) -> Result<(), InvalidField> {
    let (text, is_valid) = match amount {
        IntOrString::Int(number) => (number.to_string(), *number >= 0),
        IntOrString::String(text) => {
            (text.clone(), percentage(text).is_some_and(|percentage| percentage <= most))
        }
    };
    let valid = if most == 100 { "from 0% to 100%" } else { "such as 20%" };
    match is_valid {
        true => Ok(()),
        false => invalid(
            field,
            format!("{:?} must be a number of at least 0, or a percentage {valid}", excerpt(&text)),
        ),
    }
}

fn percentage(text: &str) -> Option<u32> {
    let digits = text.strip_suffix('%')?;
    let is_number = (1..10).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

fn is_zero(amount: &IntOrString) -> bool {
    match amount {
        IntOrString::Int(number) => *number == 0,
        IntOrString::String(text) => percentage(text) == Some(0),
    }
}

fn check_hook((name, hook): (&str, &CloneSetHook)) -> Result<(), InvalidField> {
    let field = |rest: &str| format!("spec.lifecycle.{name}.{rest}");
    for (key, value) in &hook.labels_handler {
        if !is_key(key, false) {
            let problem =
                format!("{:?} must be the key of a label, such as example.com/in-use", excerpt(key));
            return invalid(field("labelsHandler"), problem);
        }
        if !value.is_empty() && !is_label_value(value) {
            let problem = format!(
                "{:?} must be the value of a label: letters, digits, '-', '_' and '.', with a letter or digit at both \
                 ends",
                excerpt(value)
            );
            return invalid(field("labelsHandler"), problem);
        }
    }
    if let Some(bad) = hook.finalizers_handler.iter().find(|it| !is_key(it, true)) {
        let problem = format!(
            "{:?} must have a domain and a name, such as example.com/in-use; pods accept no other",
            excerpt(bad)
        );
        return invalid(field("finalizersHandler"), problem);
    }
    Ok(())
}

/// Returns true if `text` is the key of a label, or the name of a finalizer, which needs a domain.
fn is_key(text: &str, needs_domain: bool) -> bool {
    let Some((domain, name)) = text.split_once('/') else { return !needs_domain && is_label_value(text) };
    domain.len() <= MAX_DOMAIN && domain.split('.').all(is_part_of_domain) && is_label_value(name)
}
