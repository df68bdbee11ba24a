//! What a release leaves of any pod.

use std::collections::BTreeMap;

use podward_core::ConditionStatus;
use podward_core::busy::HIGHEST_COST;
use podward_core::deletion::request::{DeletionKind, DeletionRequest};
use podward_core::hooks::{consumer_key_of, hook_finalizer, is_hook_finalizer};
use podward_core::keys::{self, Key, Stage};
use podward_core::release::OtherFinalizers;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{FOREIGN_FINALIZER, Whole};
use crate::words::{CONSUMER, NOW};

fn keys_of_labels() -> impl Strategy<Value = Vec<String>> {
    let mut all: Vec<String> = ["a", "b", keys::DELETE_OPERATION]
        .iter()
        .flat_map(|id| Stage::ALL.map(|stage| stage.key(id)))
        .collect();
    all.extend([keys::permission_key("T"), keys::permission_key("delete")]);
    all.extend(
        [
            keys::SERVICE_AVAILABLE,
            keys::STAY_OFFLINE,
            keys::CREATING,
            keys::COMPLETING,
            keys::TO_DELETE,
            keys::PREPARING_TO_DELETE,
            keys::CONTROL_LABEL,
            "app",
            "operating.podopslifecycle.kusionstack.io",
        ]
        .map(ToOwned::to_owned),
    );
    let count = all.len();
    subsequence(all, 0..count)
}

fn annotations() -> impl Strategy<Value = BTreeMap<String, String>> {
    let request = DeletionRequest {
        cost_before: Some("3".to_owned()),
        ..DeletionRequest::new(DeletionKind::Delete, "jane", NOW)
    };
    let expected = format!(r#"{{"expectedFinalizers":{{"{}":"x","Slb/d/b":"y"}}}}"#, consumer_key_of("mesh"));
    let ours = format!(r#"{{"expectedFinalizers":{{"{}":"x"}}}}"#, consumer_key_of("mesh"));
    let one = |key: &'static str, texts: Vec<String>| {
        proptest::option::of(select(texts)).prop_map(move |text| text.map(|text| (key.to_owned(), text)))
    };
    let text = |text: &str| vec![text.to_owned()];
    (
        one(keys::DELETION_REQUEST, vec![request.to_text(), "?".to_owned()]),
        one(keys::DELETE_TIMESTAMP, vec!["1".to_owned(), "2".to_owned()]),
        one(keys::POD_DELETION_COST, vec!["5".to_owned(), i32::MIN.to_string(), HIGHEST_COST.to_owned()]),
        one(keys::AVAILABLE_CONDITIONS, vec![expected, ours, "{}".to_owned(), "?".to_owned()]),
        one(keys::HOOK_REQUESTS, text("{}")),
        one(keys::EVIDENCE, text("?")),
        one(keys::BREAK_GLASS, text("why")),
        one(keys::RESULT_REFUSED, text("{}")),
        one(keys::IDLE_DELETION_COST, vec![r#"{"cost":"5","since":7}"#.to_owned(), "?".to_owned()]),
        one(keys::HISTORY, text("[]")),
    )
        .prop_map(|(a, b, c, d, e, f, g, h, i, j)| {
            [a, b, c, d, e, f, g, h, i, j].into_iter().flatten().collect()
        })
}

fn pods() -> impl Strategy<Value = Whole> {
    let finalizers = vec![
        hook_finalizer("mesh"),
        hook_finalizer("gone"),
        CONSUMER.to_owned(),
        FOREIGN_FINALIZER.to_owned(),
    ];
    let gate = select(vec![
        None,
        Some(ConditionStatus::True),
        Some(ConditionStatus::False),
        Some(ConditionStatus::Unknown),
    ]);
    (keys_of_labels(), annotations(), subsequence(finalizers, 0..=4), gate, any::<[bool; 4]>()).prop_map(
        |(labels, annotations, finalizers, gate, [has_gate, terminating, has_condition, is_finished])| {
            Whole {
                labels: labels.into_iter().map(|key| (key, "1".to_owned())).collect(),
                annotations,
                finalizers,
                has_gate,
                gate,
                terminating,
                has_condition,
                is_finished,
            }
        },
    )
}

proptest! {
    #[test]
    fn nothing_of_podward_is_left_and_nothing_of_others_is_touched(pod in pods()) {
        let release = pod.release(OtherFinalizers::Keep);
        let after = pod.after(&release);
        let again = after.release(OtherFinalizers::Keep);
        prop_assert!(again.is_empty(), "a second run would change {again:?}");

        prop_assert!(!after.labels.keys().any(|key| Key::parse(key).is_protected()), "{:?}", after.labels);
        prop_assert!(!after.finalizers.iter().any(|finalizer| is_hook_finalizer(finalizer)));
        prop_assert!(!after.has_condition);
        for key in [
            keys::DELETION_REQUEST,
            keys::HOOK_REQUESTS,
            keys::EVIDENCE,
            keys::RESULT_REFUSED,
            keys::IDLE_DELETION_COST,
            keys::HISTORY,
        ] {
            prop_assert!(!after.annotations.contains_key(key), "{key}");
        }
        let expected = after.annotations.get(keys::AVAILABLE_CONDITIONS);
        prop_assert!(!expected.is_some_and(|text| text.contains(&consumer_key_of("mesh"))));
        if pod.has_gate && !pod.terminating && !pod.is_finished && !pod.labels.contains_key(keys::STAY_OFFLINE) {
            prop_assert_eq!(after.gate, Some(ConditionStatus::True));
        } else {
            prop_assert_eq!(after.gate, pod.gate);
        }

        let foreign = |pod: &Whole| -> Vec<String> {
            let marks = [keys::TO_DELETE, keys::PREPARING_TO_DELETE];
            let is_foreign = |key: &&String| {
                matches!(Key::parse(key), Key::Other | Key::Malformed) && !marks.contains(&key.as_str())
            };
            let others = |finalizer: &&String| !is_hook_finalizer(finalizer);
            let rest = [keys::BREAK_GLASS].into_iter().filter_map(|key| pod.annotations.get(key));
            let labels = pod.labels.keys().filter(is_foreign);
            labels.chain(pod.finalizers.iter().filter(others)).chain(rest).cloned().collect()
        };
        prop_assert_eq!(foreign(&pod), foreign(&after));
        // Announcements of operations that go on.
        for id in ["a", "b"] {
            let [operating, type_, undo] = [Stage::Operating, Stage::OperationType, Stage::UndoOperationType].map(|stage| stage.key(id));
            if pod.labels.contains_key(&operating) && !pod.labels.contains_key(&undo) {
                prop_assert!(after.labels.contains_key(&operating));
                prop_assert_eq!(after.labels.contains_key(&type_), pod.labels.contains_key(&type_));
            }
        }
        let has_request = pod.annotations.contains_key(keys::DELETION_REQUEST);
        prop_assert_eq!(release.dropped_request.is_some(), has_request && !pod.terminating && !pod.is_finished);
    }
}
