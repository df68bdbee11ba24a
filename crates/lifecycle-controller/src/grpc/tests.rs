//! The services against a real API server, over real TLS, with real tokens.

mod attaching;
mod hooks;
mod operating;
mod support;

use support::World;

/// One cluster for all: it takes longer to start than everything that is asked of it.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_real_api_server() {
    let world = World::start().await;
    hooks::strangers_are_told_what_is_missing(&world).await;
    hooks::the_resource_refuses_what_cant_be_right(&world).await;
    hooks::registering_is_idempotent_and_probes_the_endpoint(&world).await;
    hooks::bad_hooks_are_refused_with_words(&world).await;
    operating::an_operation_from_begin_to_finish(&world).await;
    operating::rights_are_those_of_the_namespace(&world).await;
    operating::many_at_once_on_one_pod(&world).await;
    operating::a_pod_says_that_it_is_busy(&world).await;
    operating::wishes_name_who_really_asked(&world).await;
    attaching::a_replica_that_does_not_lead_relays(&world).await;
    hooks::a_thousand_hooks(&world).await;
    world.bed.down().await.unwrap();
}
