//! Registers this hook with Podward.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use podward_proto::v1::{
    Endpoint, Hook, LabelSelector, Phase, RegisterRequest, hook::Connection,
    hook_registry_client::HookRegistryClient,
};
use tokio::fs;
use tonic::{
    Code, Request, Status,
    transport::{Certificate, Channel, ClientTlsConfig},
};

use crate::args::Args;

const TIMEOUT: Duration = Duration::from_secs(10);
const LONGEST_DELAY: Duration = Duration::from_secs(30);

/// Registers the hook, and retries until Podward is available. A repeated registration changes nothing, so every
/// replica registers whenever it starts.
///
/// # Errors
/// Fails if the hook is invalid.
pub(crate) async fn register(args: &Args) -> Result<()> {
    let mut delay = Duration::from_millis(500);
    loop {
        match attempt(args).await {
            Ok(warnings) => {
                println!("registered as {} {warnings:?}", args.hook_name);
                return Ok(());
            }
            // A retry cannot succeed, because the hook is invalid.
            Err(error) if code(&error) == Some(Code::InvalidArgument) => bail!(error),
            Err(error) => eprintln!("not registered yet: {error:#}"),
        }
        tokio::time::sleep(delay).await;
        delay = LONGEST_DELAY.min(delay * 2);
    }
}

async fn attempt(args: &Args) -> Result<Vec<String>> {
    let url = args.podward.clone().context("--podward")?;
    let tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(text(args.podward_ca.as_deref()).await?));
    let endpoint = Channel::from_shared(url)?.tls_config(tls)?.connect_timeout(TIMEOUT).timeout(TIMEOUT);
    let mut request = Request::new(RegisterRequest { hook: Some(hook(args).await?) });
    // Read the token each time, because Kubernetes renews it.
    let token = text(args.token_file.as_deref()).await?;
    request.metadata_mut().insert("authorization", format!("Bearer {}", token.trim()).parse()?);
    let mut registry = HookRegistryClient::new(endpoint.connect().await.context("connect to Podward")?);
    Ok(registry.register(request).await?.into_inner().warnings)
}

/// Returns the hook. The other fields have defaults: the deadline is 5 minutes, and after it pods continue to wait.
async fn hook(args: &Args) -> Result<Hook> {
    let match_labels = args.pod_label.iter().cloned().collect();
    let endpoint = Endpoint {
        url: args.url.clone().context("--url")?,
        ca_certificates: text(args.ca.as_deref()).await?,
        server_name: String::new(),
    };
    Ok(Hook {
        name: args.hook_name.clone(),
        pod_selector: Some(LabelSelector { match_labels, match_expressions: Vec::new() }),
        phases: vec![Phase::Prepare.into(), Phase::Complete.into(), Phase::Release.into()],
        connection: Some(Connection::Endpoint(endpoint)),
        ..Hook::default()
    })
}

fn code(error: &anyhow::Error) -> Option<Code> {
    error.downcast_ref::<Status>().map(Status::code)
}

async fn text(path: Option<&Path>) -> Result<String> {
    let path = path.context("a file is not given")?;
    fs::read_to_string(path).await.with_context(|| format!("read {}", path.display()))
}
