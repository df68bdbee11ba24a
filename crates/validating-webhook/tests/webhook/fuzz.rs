//! No delete and no eviction, whatever it holds, is left without a valid answer, and what can't be understood is never let through
//! for a pod that is held.

use std::sync::LazyLock;

use hyper::StatusCode;
use podward_core::keys::DELETION_WISH;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::scene::{POD, Scene, delete_review, evict_review, pod};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

static SCENE: LazyLock<Scene> = LazyLock::new(|| {
    let scene = RUNTIME.block_on(Scene::new());
    scene.cluster.put(POD, pod());
    scene
});

static DELETE: LazyLock<String> = LazyLock::new(|| {
    let mut pod = pod();
    let wish = json!({"kind": "Delete", "requestedBy": "jane", "requestedAt": 1, "gracePeriodSeconds": 5});
    pod["metadata"]["annotations"][DELETION_WISH] = json!(wish.to_string());
    delete_review(&pod).to_string()
});

static EVICT: LazyLock<String> =
    LazyLock::new(|| evict_review("policy/v1", json!({"gracePeriodSeconds": 3})).to_string());

/// Sends `body`, and checks what holds of any answer. Returns the response if it was judged.
fn answer(path: &str, body: &[u8]) -> Option<Value> {
    let (status, answer) = RUNTIME.block_on(SCENE.post(path, body.to_vec()));
    if status != StatusCode::OK {
        assert!(status.is_client_error() && answer.len() > 10, "{status}");
        return None;
    }
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    let response = &answer["response"];
    if !response["allowed"].as_bool().unwrap() {
        assert!([400, 403, 429].contains(&response["status"]["code"].as_u64().unwrap()), "{response}");
        assert!(!response["status"]["message"].as_str().unwrap().is_empty());
    }
    assert!(response.get("patch").is_none());
    Some(response.clone())
}

fn places(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            places(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
        }),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| places(value, &format!("{at}/{i}"), found));
        }
        _ => {}
    }
}

fn any_value() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!({})),
        Just(json!([])),
        Just(json!([{}])),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!("{\"kind\":\"Delete\",\"requestedAt\":99999999999999999999}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(500) })]

    #[test]
    fn bytes_flipped(of_delete in any::<bool>(), flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let (path, whole) = if of_delete { ("/delete", &*DELETE) } else { ("/evict", &*EVICT) };
        let mut body = whole.clone().into_bytes();
        let length = body.len();
        for (at, mask) in flips {
            body[at.index(length)] ^= mask;
        }
        answer(path, &body);
    }

    #[test]
    fn cut_short(of_delete in any::<bool>(), at in any::<prop::sample::Index>()) {
        let (path, whole) = if of_delete { ("/delete", &*DELETE) } else { ("/evict", &*EVICT) };
        prop_assert!(answer(path, &whole.as_bytes()[..at.index(whole.len())]).is_none());
    }

    #[test]
    fn another_value_somewhere(of_delete in any::<bool>(), at in any::<prop::sample::Index>(), value in any_value()) {
        let (path, whole) = if of_delete { ("/delete", &*DELETE) } else { ("/evict", &*EVICT) };
        let mut review: Value = serde_json::from_str(whole).unwrap();
        let mut found = Vec::new();
        places(&review, "", &mut found);
        let place: &String = at.get(&found);
        *review.pointer_mut(place).unwrap() = value;
        answer(path, review.to_string().as_bytes());
    }

    /// Nothing in the part of the pod that says neither who it is nor how it stands lets it go.
    #[test]
    fn a_wish_that_cannot_be_read_is_no_permission(text in ".{0,40}") {
        let mut review: Value = serde_json::from_str(&DELETE).unwrap();
        review["request"]["oldObject"]["metadata"]["annotations"][DELETION_WISH] = json!(text);
        let response = answer("/delete", review.to_string().as_bytes()).unwrap();
        prop_assert_eq!(&response["status"]["code"], 429);
    }
}
