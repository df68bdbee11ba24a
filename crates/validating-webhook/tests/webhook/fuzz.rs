//! Every review of a delete or an eviction gets a valid response. A review that cannot be parsed never allows the
//! deletion of a pod that is held.

use std::sync::LazyLock;

use hyper::StatusCode;
use podward_core::keys::DELETION_REQUEST;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::fixture::{Fixture, POD, delete_review, evict_review, pod};

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
});

static FIXTURE: LazyLock<Fixture> = LazyLock::new(|| {
    let fixture = RUNTIME.block_on(Fixture::new());
    fixture.cluster.put(POD, pod());
    fixture
});

static DELETE: LazyLock<String> = LazyLock::new(|| {
    let mut pod = pod();
    let request = json!({"kind": "Delete", "requestedBy": "jane", "requestedAt": 1, "gracePeriodSeconds": 5});
    pod["metadata"]["annotations"][DELETION_REQUEST] = json!(request.to_string());
    delete_review(&pod).to_string()
});

static EVICT: LazyLock<String> =
    LazyLock::new(|| evict_review("policy/v1", json!({"gracePeriodSeconds": 3})).to_string());

/// Sends `body`, and checks what must hold for every response. Returns the `response` to a valid review.
fn check(path: &str, body: &[u8]) -> Option<Value> {
    let (status, answer) = RUNTIME.block_on(FIXTURE.post(path, body.to_vec()));
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

fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| {
            pointers(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), found);
        }),
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| pointers(value, &format!("{at}/{i}"), found));
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
    fn flipped_bytes(of_delete in any::<bool>(), flips in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        let (path, whole) = if of_delete { ("/delete", &*DELETE) } else { ("/evict", &*EVICT) };
        let mut body = whole.clone().into_bytes();
        let length = body.len();
        for (at, mask) in flips {
            body[at.index(length)] ^= mask;
        }
        check(path, &body);
    }

    #[test]
    fn a_truncated_review(of_delete in any::<bool>(), at in any::<prop::sample::Index>()) {
        let (path, whole) = if of_delete { ("/delete", &*DELETE) } else { ("/evict", &*EVICT) };
        prop_assert!(check(path, &whole.as_bytes()[..at.index(whole.len())]).is_none());
    }

    #[test]
    fn a_replaced_value(of_delete in any::<bool>(), at in any::<prop::sample::Index>(), value in any_value()) {
        let (path, whole) = if of_delete { ("/delete", &*DELETE) } else { ("/evict", &*EVICT) };
        let mut review: Value = serde_json::from_str(whole).unwrap();
        let mut found = Vec::new();
        pointers(&review, "", &mut found);
        let place: &String = at.get(&found);
        *review.pointer_mut(place).unwrap() = value;
        check(path, review.to_string().as_bytes());
    }

    /// A deletion request on the pod never allows the deletion.
    #[test]
    fn an_invalid_deletion_request_is_not_a_permission(text in ".{0,40}") {
        let mut review: Value = serde_json::from_str(&DELETE).unwrap();
        review["request"]["oldObject"]["metadata"]["annotations"][DELETION_REQUEST] = json!(text);
        let response = check("/delete", review.to_string().as_bytes()).unwrap();
        prop_assert_eq!(&response["status"]["code"], 429);
    }
}
