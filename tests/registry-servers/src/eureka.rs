//! Netflix's Eureka.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use podward_testbed::{Part, Tools};

use crate::process::{ServerProcess, answers, free_ports};
use crate::running::RunningServer;

/// What Eureka's libraries need on Java 17.
const OPENS: [&str; 3] = ["java.base/java.lang", "java.base/java.util", "java.base/java.net"];

/// How a Eureka is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct EurekaServerOptions {
    /// The age of lists of the server, `responseCacheUpdateIntervalMs`. `None` for the default of 30 s.
    pub response_cache: Option<Duration>,
}

/// A Eureka server. Its state is in memory, and in its peers.
#[derive(Debug)]
pub struct EurekaServer {
    /// Its process, which can be stopped and started again.
    pub process: RunningServer,
    port: u16,
}

impl EurekaServer {
    /// Starts a server, and waits until it answers.
    ///
    /// # Errors
    /// Fails if Eureka is not fetched, or does not become ready.
    pub async fn start() -> Result<Self> {
        Self::start_with(EurekaServerOptions::default()).await
    }

    /// As [`start`](Self::start), with options.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with(options: EurekaServerOptions) -> Result<Self> {
        let [port] = free_ports()?;
        Self::with_peers(port, &[port], options).await
    }

    /// Starts two servers that replicate to each other.
    ///
    /// # Errors
    /// Fails if Eureka is not fetched, or does not become ready.
    pub async fn start_two() -> Result<[Self; 2]> {
        let ports: [u16; 2] = free_ports()?;
        let start = |port| Self::with_peers(port, &ports, EurekaServerOptions::default());
        let (first, second) = tokio::try_join!(start(ports[0]), start(ports[1]))?;
        Ok([first, second])
    }

    async fn with_peers(port: u16, ports: &[u16], options: EurekaServerOptions) -> Result<Self> {
        let tools = Tools::cached()?;
        if !tools.is_complete(&[Part::Eureka]) {
            bail!(
                "Eureka is not fetched; run `cargo xtask testbed build`, or the tests by `cargo xtask test`"
            );
        }
        let archive = |name: &str| {
            let path = tools.java_archive(name).with_context(|| format!("there is no archive {name}"))?;
            Ok::<_, anyhow::Error>(path.display().to_string())
        };
        let peers: Vec<String> =
            ports.iter().map(|port| format!("http://127.0.0.1:{port}/eureka/v2/")).collect();
        let mut args: Vec<String> =
            OPENS.iter().flat_map(|open| ["--add-opens".to_owned(), format!("{open}=ALL-UNNAMED")]).collect();
        args.push("-Xmx256m".to_owned());
        args.extend(
            [
                ("numberRegistrySyncRetries", "0"),
                ("waitTimeInMsWhenSyncEmpty", "0"),
                ("shouldFetchRegistry", "false"),
                ("registration.enabled", "false"),
                ("serviceUrl.default", &peers.join(",")),
            ]
            .map(|(name, value)| format!("-Deureka.{name}={value}")),
        );
        args.extend(
            options
                .response_cache
                .map(|age| format!("-Deureka.responseCacheUpdateIntervalMs={}", age.as_millis())),
        );
        args.extend(["-jar".to_owned(), archive("jetty-runner")?]);
        args.extend(["--host", "127.0.0.1", "--port"].map(str::to_owned));
        args.extend([port.to_string(), "--path".to_owned(), "/eureka".to_owned(), archive("eureka-server")?]);
        let dir = tempfile::tempdir().context("make a folder for Eureka")?;
        let process = RunningServer::start(dir, move |dir| run(args.clone(), dir, port)).await?;
        Ok(Self { process, port })
    }

    /// Returns the address for clients: `http://127.0.0.1:<port>/eureka/v2`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/eureka/v2", self.port)
    }
}

async fn run(args: Vec<String>, dir: PathBuf, port: u16) -> Result<ServerProcess> {
    let mut process = ServerProcess::start("eureka", Path::new("java"), &args, &dir)?;
    process.await_ready(|| async move { answers(port, "/eureka/v2/apps").await.unwrap_or(false) }).await?;
    Ok(process)
}
