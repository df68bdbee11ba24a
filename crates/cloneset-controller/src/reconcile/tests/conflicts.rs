//! Writes that another writer has overtaken, and objects that are gone.

use podward_api::clone_set::CloneSetCondition;
use serde_json::Value;

use super::*;

/// Returns a condition of the status that was written last.
fn stored(context: &Context, kind: &str) -> Option<CloneSetCondition> {
    let (status, _) = context.written_status(SET)?;
    status.conditions.into_iter().find(|condition| condition.type_ == kind)
}

/// Returns what changes in a set whose pods get another image in place.
fn in_place() -> Value {
    json!({"template": template("web:2"), "updateStrategy": {"type": "InPlaceIfPossible"}})
}

/// The watch delivers what has changed, and the step is repeated.
#[tokio::test]
async fn a_write_that_another_writer_has_overtaken_is_no_problem() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    reconcile(Arc::new(set(json!({}))), Arc::clone(&context)).await.unwrap();
    let steps = [
        (Method::PATCH, in_place(), CloneSetCondition::FAILED_UPDATE),
        (Method::DELETE, json!({"replicas": 0}), CloneSetCondition::FAILED_SCALE),
    ];
    for (method, change, kind) in steps {
        let set = Arc::new(set(change));
        let fails_with = async |code: u16, text: &str| {
            server.refuse_with(code, method.clone(), "pods", text);
            wait_for_interval(&context);
            reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap_err()
        };
        let error = fails_with(409, "the object has been modified").await;
        assert!(error.is_outdated(), "{error}");
        assert_eq!(stored(&context, kind), None);
        fails_with(403, "it is not allowed").await;
        let before = stored(&context, kind).unwrap();
        assert!(before.message.contains("it is not allowed"), "{before:?}");
        fails_with(409, "the object has been modified").await;
        assert_eq!(stored(&context, kind), Some(before), "what was known before stays");
    }
}

/// What is known now comes before what was known.
#[tokio::test]
async fn an_update_that_does_not_go_on_is_not_hidden_by_a_problem_of_before() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    reconcile(Arc::new(set(json!({}))), Arc::clone(&context)).await.unwrap();
    let reconcile_again = async |code: u16, text: &str| {
        server.refuse_with(code, Method::PATCH, "pods", text);
        wait_for_interval(&context);
        let error = reconcile(Arc::new(set(in_place())), Arc::clone(&context)).await.unwrap_err();
        assert_eq!(error.code(), Some(code), "{error}");
        stored(&context, CloneSetCondition::FAILED_UPDATE).unwrap().message
    };
    let message = reconcile_again(403, "it is not allowed").await;
    assert!(message.contains("it is not allowed"), "{message}");
    deliver_blocked(&context);
    let message = reconcile_again(409, "the object has been modified").await;
    assert!(message.starts_with("the update of pod web-"), "{message}");
    let message = reconcile_again(403, "it is not allowed").await;
    assert!(message.contains("it is not allowed"), "{message}");
}

/// The creation is tried again soon, and that does not help the pod that cannot be deleted.
#[tokio::test]
async fn a_creation_that_was_overtaken_hides_no_delete_that_was_refused() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    reconcile(Arc::new(set(json!({}))), Arc::clone(&context)).await.unwrap();
    let name = context.pods.of(SET)[0].name_any();
    server.refuse(Method::DELETE, "pods", "it is not allowed");
    server.also_refuse(409, Method::POST, "pods", "the quota has been modified");
    wait_for_interval(&context);
    let change = json!({"replicas": 2, "scaleStrategy": {"podsToDelete": [name]}});
    let set = Arc::new(set(change));
    // The delay has grown.
    context.remember(SET, |memory| memory.failures = 20);
    let error = reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap_err();
    assert_eq!((server.created("pods").len(), server.deleted("pods")), (2, 1), "both were tried");
    assert_eq!(error.code(), Some(403), "{error}");
    let (_, message) = condition(&context, CloneSetCondition::FAILED_SCALE).unwrap();
    assert!(message.contains("it is not allowed"), "{message}");
    assert!(context.failed(SET, &error) < Duration::from_secs(1), "the creation is tried again soon");
    server.refuse(Method::DELETE, "pods", "it is not allowed");
    let error = reconcile(set, Arc::clone(&context)).await.unwrap_err();
    assert!(context.failed(SET, &error) > Duration::from_secs(1), "nothing was overtaken");
}

/// The claim does not exist, and a pod without it would stay Pending.
#[tokio::test]
async fn a_creation_for_which_a_quota_was_overtaken_is_repeated() {
    for (resource, is_created) in [("persistentvolumeclaims", 1), ("controllerrevisions", 0)] {
        let server = ApiServer::default();
        let context = server.context(Progress::default());
        server.refuse_with(409, Method::POST, resource, "the quota has been modified");
        let claim = json!({"metadata": {"name": "data"}, "spec": {}});
        let set = Arc::new(set(json!({"volumeClaimTemplates": [claim]})));
        let error = reconcile(Arc::clone(&set), Arc::clone(&context)).await.unwrap_err();
        assert!(error.is_overtaken(), "{error}");
        let created = |resource: &str| server.created(resource).len();
        assert_eq!((created(resource), created("pods")), (1, 0));
        assert_eq!(context.revisions.of(SET).len(), is_created);
        server.refuse(Method::POST, "nothing", "");
        reconcile(set, Arc::clone(&context)).await.unwrap();
        assert_eq!((created("pods"), context.claims.of(SET).len()), (1, 1), "{resource}");
    }
}

/// The ended pod is deleted soon, and the creation that was refused hides nothing of that.
#[tokio::test]
async fn a_delete_of_an_ended_pod_that_was_overtaken_is_repeated_soon() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let with_claims = |replicas: u32| {
        let claim = json!({"metadata": {"name": "data"}, "spec": {}});
        Arc::new(set(json!({"replicas": replicas, "volumeClaimTemplates": [claim]})))
    };
    reconcile(with_claims(1), Arc::clone(&context)).await.unwrap();
    let mut ended = json!({"metadata": context.pods.of(SET)[0].metadata, "status": {"phase": "Failed"}});
    ended["metadata"]["resourceVersion"] = json!("1000");
    context.pods.deliver(serde_json::from_value(ended).unwrap());
    server.refuse_with(409, Method::DELETE, "pods", "the object has been modified");
    server.also_refuse(403, Method::POST, "pods", "it is not allowed");
    context.remember(SET, |memory| memory.failures = 20);
    let error = reconcile(with_claims(2), Arc::clone(&context)).await.unwrap_err();
    assert_eq!((server.created("pods").len(), server.deleted("pods")), (2, 1), "both were tried");
    assert_eq!(error.code(), Some(403), "{error}");
    assert!(context.failed(SET, &error) < Duration::from_secs(1));
}

/// Returns the error of a pod for which the API server answers with this code.
fn failure(code: u16) -> SetError {
    let status = json!({"status": "Failure", "code": code, "message": "", "reason": ""});
    let source = Box::new(kube::Error::Api(serde_json::from_value(status).unwrap()));
    SetError::Api { what: "write pod", object: "test/web-a".to_owned(), source }
}

/// It is not asked more often because another writer was faster.
#[tokio::test]
async fn a_server_that_does_not_serve_gets_its_delay_although_a_step_was_overtaken() {
    let context = ApiServer::default().context(Progress::default());
    let timed_out =
        SetError::TimedOut { what: "write pod", object: "test/web-a".to_owned(), after: Duration::ZERO };
    for error in [failure(503), failure(429), timed_out] {
        context.remember(SET, |memory| (memory.failures, memory.overtaken) = (20, true));
        assert!(context.failed(SET, &error) > Duration::from_secs(1), "{error}");
    }
}

/// They are repeated soon for the step that was overtaken, and the next failure is the first of its kind.
#[tokio::test]
async fn refusals_beside_a_step_that_was_overtaken_do_not_count() {
    let context = ApiServer::default().context(Progress::default());
    for _ in 0..10 {
        context.remember(SET, |memory| memory.overtaken = true);
        assert!(context.failed(SET, &failure(403)) < Duration::from_secs(1));
    }
    assert!(context.failed(SET, &failure(503)) < Duration::from_secs(1));
}

/// An API server without `pods/resize` answers that the path does not exist.
#[tokio::test]
async fn a_path_that_does_not_exist_is_a_problem() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    reconcile(Arc::new(set(json!({}))), Arc::clone(&context)).await.unwrap();
    server.refuse_with(404, Method::PATCH, "pods", "page not found");
    wait_for_interval(&context);
    fails(&Arc::new(set(in_place())), &context).await;
    let (_, message) = condition(&context, CloneSetCondition::FAILED_UPDATE).unwrap();
    assert!(message.contains("page not found"), "{message}");
}
