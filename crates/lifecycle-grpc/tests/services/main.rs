//! The services with a real API server, TLS and service account tokens.
//!
//! All tests share one cluster, which takes longer to start than the tests run. They run one after the other, in the
//! order of this file. A test fails if the cluster cannot start.

// A helper of a test fails as a test does.
#![allow(clippy::unwrap_used, clippy::panic)]

mod attaching;
mod authority;
mod fixture;
mod hook_attacks;
mod hooks;
mod lifecycle;
mod stand_ins;

use std::process::ExitCode;
use std::sync::LazyLock;

use fixture::Fixture;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;

/// The runtime of all tests. They share it because the connections of the shared cluster belong to a runtime.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

macro_rules! tests {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(test(stringify!($name), $module::$name)),*]
    };
}

fn main() -> ExitCode {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let mut arguments = Arguments::from_args();
    // The tests share a cluster and its hooks.
    arguments.test_threads = Some(1);
    let tests = tests![
        hooks::untrusted_callers_are_refused_with_a_reason,
        hook_attacks::a_user_who_may_only_create_can_not_replace_a_hook,
        hook_attacks::a_team_registers_hooks_for_its_own_namespace_only,
        hook_attacks::hooks_of_a_team_are_small,
        hook_attacks::a_team_has_no_more_hooks_than_allowed,
        hook_attacks::lists_that_are_not_read_are_limited,
        hooks::the_api_server_refuses_invalid_resources,
        hooks::registering_is_idempotent_and_probes_the_endpoint,
        hooks::invalid_hooks_are_refused_with_a_reason,
        lifecycle::an_operation_from_begin_to_finish,
        lifecycle::rights_are_those_of_the_namespace,
        lifecycle::concurrent_operations_on_one_pod,
        lifecycle::a_pod_reports_that_it_is_busy,
        lifecycle::deletion_requests_name_the_real_user,
        lifecycle::a_request_is_recorded_when_its_caller_has_gone,
        attaching::a_replica_that_does_not_lead_relays,
        attaching::unknown_messages_are_ignored,
        lifecycle::a_revoked_right_ends_a_watch,
        attaching::a_revoked_right_ends_an_attached_stream,
        attaching::streams_of_the_hooks_of_one_namespace_are_limited,
        attaching::a_replica_relays_more_streams_than_one_connection_has,
        attaching::streams_that_are_not_read_do_not_stop_others,
        attaching::silent_streams_of_a_user_without_rights,
        hooks::a_thousand_hooks,
    ];
    let conclusion = libtest_mimic::run(&arguments, tests);
    RUNTIME.block_on(fixture::end(conclusion.has_failed()));
    conclusion.exit_code()
}

/// Returns a test that uses the shared cluster.
fn test<F>(name: &'static str, body: F) -> Trial
where
    F: AsyncFnOnce(&'static Fixture) + Send + 'static,
{
    Trial::test(name, move || {
        RUNTIME.block_on(async {
            let fixture = fixture::shared().await;
            body(fixture).await;
        });
        Ok(())
    })
}
