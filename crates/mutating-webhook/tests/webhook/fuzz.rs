//! Every body gets a valid response.

use std::sync::LazyLock;

use hyper::StatusCode;
use podward_core::keys::Stage;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::reviews::{UID, pod, review};
use crate::{post, send, service};

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap());

static REVIEW: LazyLock<String> = LazyLock::new(|| {
    let (operating, kind) = (Stage::Operating.key("a"), Stage::OperationType.key("a"));
    review("UPDATE", pod(&[]), pod(&[(&operating, "1"), (&kind, "update")])).to_string()
});

/// Sends `body`, and checks what must hold for every response. Returns the `response` to a valid review.
fn check(path: &str, body: &[u8]) -> Option<Value> {
    let (status, answer) = RUNTIME.block_on(send(&service(false), post(path, body.to_vec())));
    if status != StatusCode::OK {
        assert!(status.is_client_error(), "{status}");
        let text = std::str::from_utf8(&answer).unwrap();
        assert!(text.trim().len() > 10 && text.len() < 20_000 && text.lines().count() == 1, "{text}");
        return None;
    }
    let answer: Value = serde_json::from_slice(&answer).unwrap();
    assert_eq!(
        (&answer["apiVersion"], &answer["kind"]),
        (&json!("admission.k8s.io/v1"), &json!("AdmissionReview"))
    );
    let response = &answer["response"];
    // Fields that are not used are not parsed completely: a number out of range or invalid UTF-8 there causes no error.
    match serde_json::from_slice::<Value>(body) {
        Ok(review) => assert_eq!(response["uid"], review["request"]["uid"]),
        Err(_) => assert!(response["uid"].is_string()),
    }
    match response["allowed"].as_bool().unwrap() {
        true => assert!(response.get("status").is_none()),
        false => {
            assert!(response.get("patch").is_none());
            assert!(!response["status"]["message"].as_str().unwrap().is_empty());
            assert!([400, 403].contains(&response["status"]["code"].as_u64().unwrap()));
        }
    }
    assert_eq!(response.get("patch").is_some(), response.get("patchType").is_some());
    Some(response.clone())
}

/// Returns any JSON value.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        Just(json!("True")),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((".{0,8}", inner), 0..4).prop_map(|pairs| pairs.into_iter().collect::<Value>()),
        ]
    })
}

/// Collects the JSON pointers of all values in `value`.
fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
    found.push(at.to_owned());
    let escaped = |key: &str| key.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(map) => {
            map.iter().for_each(|(key, value)| pointers(value, &format!("{at}/{}", escaped(key)), found))
        }
        Value::Array(list) => {
            list.iter().enumerate().for_each(|(i, value)| pointers(value, &format!("{at}/{i}"), found))
        }
        _ => {}
    }
}

/// Returns text that parsers often handle wrongly, to replace a value.
fn malformed_text() -> impl Strategy<Value = String> {
    prop_oneof![
        (1..200_usize).prop_map(|depth| "[".repeat(depth) + &"]".repeat(depth)),
        (1..10_000_usize).prop_map(|depth| "{\"a\":".repeat(depth)),
        (1..400_usize).prop_map(|digits| "9".repeat(digits)),
        Just("1e99999".to_owned()),
        Just("-0".to_owned()),
        Just("\"\\ud800\"".to_owned()),
        Just("\"\\u0000\"".to_owned()),
        Just("\"\u{202e}\u{feff}\"".to_owned()),
        Just("NaN".to_owned()),
        Just("{\"a\":1,\"a\":2}".to_owned()),
        Just("{\"labels\":{},\"labels\":null}".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1000) })]

    #[test]
    fn any_bytes(body in vec(any::<u8>(), 0..400)) {
        prop_assert!(check("/mutate", &body).is_none());
    }

    #[test]
    fn any_document(body in any_json()) {
        prop_assert!(check("/inject", body.to_string().as_bytes()).is_none());
    }

    #[test]
    fn a_review_cut_short(at in 0..REVIEW.len()) {
        prop_assert!(check("/mutate", &REVIEW.as_bytes()[..at]).is_none());
    }

    #[test]
    fn a_review_with_bytes_flipped(flips in vec((0..REVIEW.len(), any::<u8>()), 1..4)) {
        let mut body = REVIEW.clone().into_bytes();
        for (at, mask) in flips {
            body[at] ^= mask;
        }
        check("/mutate", &body);
    }

    #[test]
    fn a_review_with_a_replaced_value(at in any::<prop::sample::Index>(), value in any_json()) {
        let mut review: Value = serde_json::from_str(&REVIEW).unwrap();
        let mut found = Vec::new();
        pointers(&review, "", &mut found);
        let place = at.get(&found);
        *review.pointer_mut(place).unwrap() = value;
        let response = check("/mutate", review.to_string().as_bytes());
        let is_valid_review = review["request"]["uid"] == UID && review["kind"] == "AdmissionReview"
            && review["apiVersion"] == "admission.k8s.io/v1";
        if is_valid_review {
            prop_assert!(response.is_some(), "a review with a UID got no response: {}", place);
        }
    }

    #[test]
    fn a_review_with_malformed_text(text in malformed_text(), at in 0..4_usize) {
        let place = ["\"web:1\"", "\"update\"", "\"7\"", "\"kubelet\""][at];
        check("/mutate", REVIEW.replace(place, &text).as_bytes());
    }

    #[test]
    fn a_review_with_a_duplicate_key(at in 0..4_usize) {
        let key = ["\"uid\"", "\"object\"", "\"request\"", "\"labels\""][at];
        let duplicate = REVIEW.replacen(key, &format!("{key}:null,{key}"), 1);
        let response = check("/mutate", duplicate.as_bytes());
        prop_assert!(response.is_none_or(|response| response["allowed"] == false));
    }

    #[test]
    fn invalid_utf8_in_a_string_that_is_used(at in 0..3_usize, byte in 0x80..=0xff_u8) {
        let place = ["shop", "update", "system:auth"][at];
        let start = REVIEW.find(place).unwrap();
        let mut body = REVIEW.clone().into_bytes();
        body[start] = byte;
        let response = check("/mutate", &body);
        prop_assert!(response.is_none_or(|response| response["allowed"] == false));
    }
}
