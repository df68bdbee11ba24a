//! The traffic-controller on a real node: kubelet, kube-proxy in the mode nftables, and clients of a Service.
//!
//! All tests share one cluster and run one after the other. They need root; for other users they are reported as
//! ignored.

// A helper of a test fails as a test does.
#![allow(clippy::unwrap_used, clippy::panic)]

mod api_servers;
mod clients;
mod fixture;
mod questions;
mod registry;

use std::process::ExitCode;
use std::sync::LazyLock;

use fixture::Fixture;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;

/// The runtime of all tests. They share it because the connections of the shared cluster belong to a runtime.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().unwrap());

fn main() -> ExitCode {
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let mut arguments = Arguments::from_args();
    // The tests share a cluster, and the last one stops its kube-proxy.
    arguments.test_threads = Some(1);
    let tests = vec![
        test("only_the_lifecycle_controller_may_call", questions::only_the_lifecycle_controller_may_call),
        test(
            "evidence_agrees_with_what_clients_observe",
            questions::evidence_agrees_with_what_clients_observe,
        ),
        test("a_pod_that_reports_its_requests", questions::a_pod_that_reports_its_requests),
        test("an_ingress_bounds_the_evidence", questions::an_ingress_bounds_the_evidence),
        test(
            "the_last_endpoint_waits_for_its_replacement",
            questions::the_last_endpoint_waits_for_its_replacement,
        ),
        test(
            "the_last_endpoint_on_a_node_waits_for_its_replacement",
            questions::the_last_endpoint_on_a_node_waits_for_its_replacement,
        ),
        test(
            "a_pod_without_services_is_done_immediately",
            questions::a_pod_without_services_is_done_immediately,
        ),
        test("a_proxy_that_lags_is_waited_for", api_servers::a_proxy_that_lags_is_waited_for),
        test("it_registers_itself", registry::it_registers_itself),
        test("a_proxy_that_is_down_is_waited_for", questions::a_proxy_that_is_down_is_waited_for),
    ];
    let conclusion = libtest_mimic::run(&arguments, tests);
    RUNTIME.block_on(fixture::end(conclusion.has_failed()));
    conclusion.exit_code()
}

/// Returns a test that uses the shared cluster. Only root can start a real node.
fn test<F>(name: &'static str, body: F) -> Trial
where
    F: AsyncFnOnce(&'static Fixture) + Send + 'static,
{
    let is_root = nix::unistd::geteuid().is_root();
    let trial = Trial::test(name, move || {
        RUNTIME.block_on(async {
            let fixture = fixture::shared().await;
            body(fixture).await;
        });
        Ok(())
    });
    trial.with_kind(if is_root { "" } else { "needs root" }).with_ignored_flag(!is_root)
}
