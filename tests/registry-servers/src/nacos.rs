//! rnacos, which has the HTTP interface of Nacos 1.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use podward_testbed::Part;
use tempfile::TempDir;

use crate::process::{ServerProcess, answers, free_ports, program};

/// What answers 200 when the server takes changes.
const HEALTH: &str = "/health";
/// The time in which the server makes its user.
const USER_MADE: Duration = Duration::from_secs(20);
const ATTEMPTS: usize = 4;

/// How a server is started.
#[derive(Debug, Default)]
pub struct NacosServerOptions {
    /// The password of the user `nacos`. Without it everybody may do everything.
    pub password: Option<String>,
}

/// A server that does not probe its instances, as Nacos after its health checks were switched off.
#[derive(Debug)]
pub struct NacosServer {
    process: ServerProcess,
    settings: Vec<String>,
    /// What answers 200 when the server is ready.
    ready: String,
    port: u16,
    dir: TempDir,
}

impl NacosServer {
    /// Starts a server, and waits until it answers.
    ///
    /// # Errors
    /// Fails if rnacos is not built, or does not become ready.
    pub async fn start(options: NacosServerOptions) -> Result<Self> {
        let [port, grpc, console] = free_ports()?;
        let dir = tempfile::tempdir().context("make a folder for rnacos")?;
        let mut settings = vec![
            format!("RNACOS_HTTP_PORT={port}"),
            format!("RNACOS_GRPC_PORT={grpc}"),
            format!("RNACOS_HTTP_CONSOLE_PORT={console}"),
            "RNACOS_SDK_HOST=127.0.0.1".to_owned(),
            "RNACOS_CONSOLE_HOST=127.0.0.1".to_owned(),
            "RNACOS_HTTP_WORKERS=2".to_owned(),
            "RNACOS_NAMING_PERPETUAL_INSTANCE_PROBE_INTERVAL_SECOND=0".to_owned(),
        ];
        let mut ready = HEALTH.to_owned();
        if let Some(password) = &options.password {
            settings.extend([
                "RNACOS_ENABLE_OPEN_API_AUTH=true".to_owned(),
                "RNACOS_API_LOGIN_ONE_MINUTE_LIMIT=100000".to_owned(),
                "RNACOS_INIT_ADMIN_USERNAME=nacos".to_owned(),
                format!("RNACOS_INIT_ADMIN_PASSWORD={password}"),
            ]);
            // The user is made some time after the server answers.
            ready = format!("/nacos/v1/auth/login?username=nacos&password={password}");
        }
        let process = run(&settings, &ready, &dir, port).await?;
        Ok(Self { process, settings, ready, port, dir })
    }

    /// Returns the address for clients: `http://127.0.0.1:<port>/nacos`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/nacos", self.port)
    }

    /// Kills the server.
    ///
    /// # Errors
    /// Fails if it cannot be killed.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Kills the server and starts it again, without its state.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn restart_empty(&mut self) -> Result<()> {
        self.process.kill().await?;
        self.dir = tempfile::tempdir().context("make a folder for rnacos")?;
        self.process = run(&self.settings, &self.ready, &self.dir, self.port).await?;
        Ok(())
    }
}

/// Starts rnacos with an empty folder. It makes its user once, and not at all if it is too slow at that moment: then it is
/// started again.
async fn run(settings: &[String], ready: &str, dir: &TempDir, port: u16) -> Result<ServerProcess> {
    for attempt in 0..ATTEMPTS {
        let mut args = settings.to_vec();
        args.push(format!("RNACOS_DATA_DIR={}", dir.path().join(format!("data-{attempt}")).display()));
        args.push(program("rnacos", Part::Nacos)?.display().to_string());
        let mut process = ServerProcess::start("rnacos", "env".as_ref(), &args, dir.path())?;
        // Before it has elected itself it takes no changes.
        process.await_ready(|| async move { answers(port, HEALTH).await.unwrap_or(false) }).await?;
        let is_ready = process.await_ready(|| async move { answers(port, ready).await.unwrap_or(false) });
        match tokio::time::timeout(USER_MADE, is_ready).await {
            Ok(is_ready) => return is_ready.map(|()| process),
            Err(_) => process.kill().await?,
        }
    }
    bail!("rnacos made no user in {ATTEMPTS} attempts of {} s", USER_MADE.as_secs())
}
