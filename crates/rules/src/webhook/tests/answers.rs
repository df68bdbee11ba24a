//! The messages of the protocol.

use podward_api::pod_transition_rule::Parameter;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::wire::{PollAnswer, PostAnswer};
use super::super::wire::{RequestBody, resource_json, trace_id};

#[test]
fn requests_have_the_form_of_the_protocol() {
    let request = |stage, parameters: Value| {
        let parameters: Vec<Parameter> = serde_json::from_value(parameters).unwrap();
        let mut body = RequestBody::new("t", "r", stage).unwrap();
        body.add(
            &resource_json("web-0", &parameters, &json!({"status": {"podIP": "10.0.0.1"}})).unwrap().unwrap(),
        );
        String::from_utf8(body.finish()).unwrap()
    };
    let ip = json!({"key": "podIP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    assert_eq!(
        request(Some("PreCheck"), json!([ip, {"key": "a", "value": "null"}])),
        concat!(
            r#"{"traceId":"t","ruleName":"r","stage":"PreCheck","resources":[{"apiVersion":"core/v1","#,
            r#""kind":"Pod","name":"web-0","parameters":{"a":"","podIP":"10.0.0.1"}}]}"#
        )
    );
    assert_eq!(
        request(None, json!([])),
        r#"{"traceId":"t","ruleName":"r","resources":[{"apiVersion":"core/v1","kind":"Pod","name":"web-0"}]}"#
    );
}

#[test]
fn traces_are_random_uuids() {
    let (one, other) = (trace_id(), trace_id());
    assert_ne!(one, other);
    let lengths: Vec<usize> = one.split('-').map(str::len).collect();
    assert_eq!((lengths, one.as_bytes()[14]), (vec![8, 4, 4, 4, 12], b'4'));
    assert!(b"89ab".contains(&one.as_bytes()[19]));
}

#[test]
fn answers_are_read_as_go_reads_them() {
    let read = |answer: Value| PostAnswer::read(answer.to_string().as_bytes());
    let answer = read(json!({
        "success": true, "message": "m", "finishedNames": ["a"], "poll": true, "traceId": "x", "taskId": "t",
        "more": 1,
    }));
    let task = Some("t".to_owned());
    assert_eq!(
        answer.unwrap(),
        PostAnswer { success: true, message: "m".to_owned(), finished_names: vec!["a".to_owned()], task }
    );
    assert_eq!(read(json!({})).unwrap(), PostAnswer::default());
    assert_eq!(
        read(json!({"success": null, "finishedNames": null, "taskId": "t"})).unwrap(),
        PostAnswer::default()
    );
    for (answer, task) in [
        (json!({"async": true, "traceId": "x"}), Some("x")),
        (json!({"poll": true, "traceId": "x", "taskId": ""}), Some("x")),
        (json!({"POLL": true, "TaskID": "t"}), Some("t")),
        (json!({"poll": true}), Some("")),
        (json!({"traceId": "x", "taskId": "t"}), None),
    ] {
        assert_eq!(read(answer.clone()).unwrap().task.as_deref(), task, "{answer}");
    }
    let poll =
        PollAnswer::read(br#"{"success":true,"finished":true,"stop":true,"finishedNames":["a"]}"#).unwrap();
    assert!(poll.success && poll.finished && poll.stop && poll.finished_names == ["a"]);
}

#[test]
fn an_unreadable_answer_is_a_failure() {
    for body in [
        "",
        "<html>",
        "[]",
        "null",
        r#"{"success":"yes"}"#,
        r#"{"message":1}"#,
        r#"{"finishedNames":[1]}"#,
        r#"{"finishedNames":{}}"#,
    ] {
        let failure = PostAnswer::read(body.as_bytes()).unwrap_err();
        assert!(failure.to_string().contains("can't be understood"), "{body}: {failure:?}");
    }
    let long = json!({"poll": true, "taskId": "t".repeat(2000)}).to_string();
    assert!(PostAnswer::read(long.as_bytes()).is_err());
    let talkative = json!({"success": false, "message": "m".repeat(5000)}).to_string();
    assert!(PostAnswer::read(talkative.as_bytes()).unwrap().message.len() < 1100);
}

proptest! {
    #[test]
    fn no_answer_causes_a_panic(body in prop::collection::vec(any::<u8>(), 0..200), text in ".*") {
        let _ = (PostAnswer::read(&body), PollAnswer::read(&body), PostAnswer::read(text.as_bytes()));
        if let Ok(answer) = PostAnswer::read(json!({"success": true, "message": text}).to_string().as_bytes()) {
            prop_assert!(answer.message.chars().count() <= 1025);
        }
    }
}
