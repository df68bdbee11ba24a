//! The secret in the path of a webhook that the API server can't call.

use podward_core::webhook_path::PathSecret;

use super::*;

#[tokio::test]
async fn the_secret_of_a_webhook_is_in_no_event_and_no_status() {
    let server = ApiServer::default();
    let context = server.context(Progress::default());
    let path = PathSecret::of_random([0xab; 32]).path("/mutate");
    let text = format!(
        "failed calling webhook: Post \"https://mutating-webhook.podward-system.svc:443{path}\": EOF"
    );
    server.refuse_with(500, Method::POST, "pods", &text);
    fails(&Arc::new(set(json!({}))), &context).await;
    let shown = ".svc:443/<secret>/mutate";
    let (_, message) = condition(&context, CloneSetCondition::FAILED_SCALE).unwrap();
    assert!(message.contains(shown), "{message}");
    let events = server.events(&context).await;
    assert!(events.iter().any(|(_, _, note)| note.contains(shown)), "{events:?}");
    let requests = server.requests();
    assert!(requests.contains(shown) && !requests.contains("abab"), "{requests}");
}
