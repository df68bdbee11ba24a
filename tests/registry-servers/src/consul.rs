//! Consul.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use podward_testbed::Part;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::certificates::TestCertificates;
use crate::process::{ServerProcess, free_ports, program};
use crate::running::RunningServer;

/// A server that has just started has no leader. Half a minute.
const TOKEN_ATTEMPTS: usize = 120;

/// How a Consul is started.
#[derive(Debug, Default)]
pub struct ConsulServerOptions {
    /// The token that may do everything. Without it everybody may do everything.
    pub token: Option<String>,
    /// Serve HTTPS with these certificates, and require that clients have one of the same authority.
    pub tls: Option<TestCertificates>,
}

/// A token of Consul.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ConsulToken {
    /// What it is known by.
    #[serde(rename = "AccessorID")]
    pub accessor: String,
    /// What clients send.
    #[serde(rename = "SecretID")]
    pub secret: String,
}

/// A Consul server that keeps its state in memory.
#[derive(Debug)]
pub struct ConsulServer {
    /// Its process, which can be stopped and started again.
    pub process: RunningServer,
    port: u16,
    scheme: &'static str,
    token: Option<String>,
}

impl ConsulServer {
    /// Starts a server, and waits until it accepts connections.
    ///
    /// # Errors
    /// Fails if Consul is not built, or does not become ready.
    pub async fn start(options: ConsulServerOptions) -> Result<Self> {
        let dir = tempfile::tempdir().context("make a folder for Consul")?;
        let [port, server, serf] = free_ports()?;
        let mut settings = vec!["disable_update_check = true".to_owned()];
        if let Some(token) = &options.token {
            settings.push(format!(
                r#"acl {{ enabled = true, default_policy = "deny", tokens {{ initial_management = "{token}" }} }}"#
            ));
        }
        let (mut http, mut https) = (port.to_string(), "-1".to_owned());
        if let Some(tls) = &options.tls {
            std::mem::swap(&mut http, &mut https);
            tls.write_into(dir.path())?;
            settings.push(
                r#"tls { https { ca_file = "ca.pem", cert_file = "cert.pem", key_file = "key.pem", verify_incoming = true } }"#
                    .to_owned(),
            );
        }
        settings
            .push(format!("ports {{ http = {http}, https = {https}, dns = -1, grpc = -1, grpc_tls = -1 }}"));
        let mut args: Vec<String> =
            ["agent", "-dev", "-node=server", "-bind=127.0.0.1", "-client=127.0.0.1", "-log-level=warn"]
                .map(str::to_owned)
                .to_vec();
        args.extend([
            format!("-server-port={server}"),
            format!("-serf-lan-port={serf}"),
            "-serf-wan-port=-1".to_owned(),
        ]);
        args.extend(settings.into_iter().map(|setting| format!("-hcl={setting}")));
        let process = RunningServer::start(dir, move |dir| run(args.clone(), dir, port)).await?;
        let scheme = if options.tls.is_some() { "https" } else { "http" };
        Ok(Self { process, port, scheme, token: options.token })
    }

    /// Makes a token that may do everything. The server needs one itself, and no TLS.
    ///
    /// # Errors
    /// Fails if Consul refuses, or has no leader for long.
    pub async fn create_token(&self) -> Result<ConsulToken> {
        let args = ["acl", "token", "create", "-policy-name=global-management", "-format=json"];
        let mut last = Ok(Vec::new());
        for _ in 0..TOKEN_ATTEMPTS {
            last = self.command(&args).await;
            if let Ok(output) = &last {
                return serde_json::from_slice(output).context("read the new token");
            }
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
        last.and_then(|_| bail!("no token was made"))
    }

    /// Deletes a token.
    ///
    /// # Errors
    /// Fails if Consul refuses.
    pub async fn delete_token(&self, token: &ConsulToken) -> Result<()> {
        let accessor = format!("-accessor-id={}", token.accessor);
        self.command(&["acl", "token", "delete", &accessor]).await.map(drop)
    }

    async fn command(&self, args: &[&str]) -> Result<Vec<u8>> {
        let mut command = Command::new(program("consul", Part::Consul)?);
        command.args(args).env("CONSUL_HTTP_ADDR", self.url()).kill_on_drop(true);
        if let Some(token) = &self.token {
            command.env("CONSUL_HTTP_TOKEN", token);
        }
        let output = command.output().await.context("run consul")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "consul {}: {said}", args.join(" "));
        Ok(output.stdout)
    }

    /// Returns the address of its HTTP interface: `http://127.0.0.1:<port>`, or with `https`.
    pub fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }
}

async fn run(args: Vec<String>, dir: PathBuf, port: u16) -> Result<ServerProcess> {
    let mut process = ServerProcess::start("consul", &program("consul", Part::Consul)?, &args, &dir)?;
    process.await_ready(|| async move { TcpStream::connect(("127.0.0.1", port)).await.is_ok() }).await?;
    Ok(process)
}
