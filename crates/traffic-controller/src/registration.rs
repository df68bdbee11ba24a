//! Registers this service as a hook.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use podward_proto::v1::hook_registry_client::HookRegistryClient;
use podward_proto::v1::{
    DeadlinePolicy, Endpoint, FailurePolicy, GateTiming, Hook, Phase, RegisterRequest, hook,
};
use podward_runtime::grpc_client::{BearerToken, Replicas, Trust};
use tokio_util::sync::CancellationToken;
use tonic::Request;

use crate::args::RegistrationArgs;
use crate::metrics::Metrics;

/// A deregistered hook, or a new authority, is made up for within this time: until then nobody speaks for Services. Registering what is
/// so already changes nothing.
const AGAIN: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
const PATIENCE: Duration = Duration::from_secs(10);
/// Questions at a time: more than are held open, so that there is always room for those that are answered at once.
const CALLS: u32 = 256;
const CALL_TIMEOUT: i64 = 10;

/// Registers, again and again with back-off until it succeeds, and from time to time after that, until `stop`.
///
/// # Errors
/// When the URL of the lifecycle-controller can't be right.
pub(crate) fn start(
    args: RegistrationArgs,
    token_file: &Path,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()> + use<>> {
    let replicas =
        Replicas::new(&args.controller_url, Trust::file(&args.controller_ca)).context("--controller-url")?;
    let token = BearerToken::from_file(token_file);
    Ok(async move {
        let mut pause = FIRST_PAUSE;
        let mut known = None;
        loop {
            let registered = stop.run_until_cancelled(register(&replicas, &token, &args)).await;
            let Some(registered) = registered else { return };
            metrics.registered.set(i64::from(registered.is_ok()));
            let rest = match registered {
                Ok(warnings) => {
                    if known.as_ref() != Some(&warnings) {
                        tracing::info!(
                            hook = args.hook_name,
                            url = args.advertise_url,
                            ?warnings,
                            "registered"
                        );
                        known = Some(warnings);
                    }
                    pause = FIRST_PAUSE;
                    AGAIN
                }
                Err(error) => {
                    known = None;
                    tracing::warn!(
                        hook = args.hook_name,
                        error = format!("{error:#}"),
                        "could not register; tried again with back-off"
                    );
                    let rest = pause.mul_f64(0.75 + fastrand::f64() / 2.0);
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    rest
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(rest)).await.is_none() {
                return;
            }
        }
    })
}

async fn register(replicas: &Replicas, token: &BearerToken, args: &RegistrationArgs) -> Result<Vec<String>> {
    let file = &args.advertise_ca;
    let authorities = tokio::fs::read_to_string(file).await;
    let authorities =
        authorities.with_context(|| format!("read {}, the file of --advertise-ca", file.display()))?;
    let ours = hook(args, authorities);
    let answer = replicas.ask(PATIENCE, |channel| {
        let mut client = HookRegistryClient::with_interceptor(channel, token.clone());
        let mut request = Request::new(RegisterRequest { hook: Some(ours.clone()) });
        request.set_timeout(PATIENCE);
        async move { client.register(request).await }
    });
    let answer = answer.await.map_err(|status| {
        let at = args.controller_url.join(", ");
        anyhow::anyhow!("the lifecycle-controller ({at}) answers {:?}: {}", status.code(), status.message())
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
        max_concurrent_calls: CALLS,
        call_timeout: Some(prost_types::Duration { seconds: CALL_TIMEOUT, nanos: 0 }),
        ..Hook::default()
    }
}
