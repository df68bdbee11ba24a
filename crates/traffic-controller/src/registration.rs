//! Registers the traffic-controller as a hook.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_proto::v1::{
    DeadlinePolicy, Endpoint, FailurePolicy, GateTiming, Hook, Phase, RegisterRequest, hook,
};
use podward_runtime::grpc_client::{BearerToken, Replicas};
use podward_runtime::retry;
use podward_runtime::tls::AuthoritySource;
use tokio_util::sync::CancellationToken;
use tonic::Request;

use crate::args::RegistrationArgs;
use crate::metrics::TrafficMetrics;

/// The interval of registrations. It bounds the time until a deregistered hook or a new certificate authority is
/// registered again: meanwhile no hook is responsible for Services. A registration that changes nothing writes nothing.
const REGISTER_INTERVAL: Duration = Duration::from_secs(10);
const REGISTER_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of concurrent calls. It is larger than the number of calls that are held open, so that there is
/// always room for calls that are answered immediately.
const MAX_CONCURRENT_CALLS: u32 = 256;
/// The timeout of calls, in seconds.
const CALL_TIMEOUT_SECONDS: i64 = 10;

/// Registers the hook with `replicas` of the lifecycle-controller until `stop`. It retries with back-off until the
/// registration succeeds, and repeats the registration every [`REGISTER_INTERVAL`]. The lifecycle-controller verifies
/// this service with the authorities `advertised`.
pub(crate) async fn run(
    args: RegistrationArgs,
    replicas: Replicas,
    advertised: AuthoritySource,
    token: BearerToken,
    metrics: Arc<TrafficMetrics>,
    stop: CancellationToken,
) {
    let mut failures = 0;
    let mut reported = None;
    loop {
        let registered = stop.run_until_cancelled(register(&replicas, &token, &args, &advertised)).await;
        let Some(registered) = registered else { return };
        metrics.registered.set(i64::from(registered.is_ok()));
        let delay = match registered {
            Ok(warnings) => {
                if reported.as_ref() != Some(&warnings) {
                    tracing::info!(
                        hook = args.hook_name,
                        url = args.advertise_url,
                        ?warnings,
                        "registered the hook"
                    );
                    reported = Some(warnings);
                }
                failures = 0;
                REGISTER_INTERVAL
            }
            Err(error) => {
                reported = None;
                tracing::warn!(
                    hook = args.hook_name,
                    error = format!("{error:#}"),
                    "could not register the hook; retrying with back-off"
                );
                failures += 1;
                retry::delay_after(retry::PEER, failures)
            }
        };
        if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
            return;
        }
    }
}

async fn register(
    replicas: &Replicas,
    token: &BearerToken,
    args: &RegistrationArgs,
    advertised: &AuthoritySource,
) -> Result<Vec<String>> {
    let authorities = advertised
        .text()
        .context("could not read the certificate authorities of this service (--advertise-ca)")?;
    let ours = hook(args, authorities);
    let answer = replicas.ask(REGISTER_TIMEOUT, |channel| {
        let mut client = HookRegistryClient::with_interceptor(channel, token.clone());
        let mut request = Request::new(RegisterRequest { hook: Some(ours.clone()) });
        request.set_timeout(REGISTER_TIMEOUT);
        async move { client.register(request).await }
    });
    let answer = answer.await.map_err(|status| {
        let at = args.controller.controller_url.join(", ");
        anyhow::anyhow!("the lifecycle-controller ({at}) returned {:?}: {}", status.code(), status.message())
    })?;
    Ok(answer.into_inner().warnings)
}

fn hook(args: &RegistrationArgs, ca_certificates: String) -> Hook {
    let phases = [Phase::PreCheck, Phase::Prepare, Phase::Complete, Phase::Release];
    Hook {
        name: args.hook_name.clone(),
        phases: phases.into_iter().map(i32::from).collect(),
        connection: Some(hook::Connection::Endpoint(Endpoint {
            url: args.advertise_url.clone(),
            ca_certificates,
            server_name: String::new(),
        })),
        deadline_policy: DeadlinePolicy::Hold.into(),
        failure_policy: FailurePolicy::Fail.into(),
        prepare_timing: GateTiming::AfterGate.into(),
        complete_timing: GateTiming::AfterGate.into(),
        max_concurrent_calls: MAX_CONCURRENT_CALLS,
        call_timeout: Some(prost_types::Duration { seconds: CALL_TIMEOUT_SECONDS, nanos: 0 }),
        ..Hook::default()
    }
}
