//! rnacos, which has the HTTP interface of Nacos 1.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use podward_testbed::Part;

use crate::process::{ServerProcess, answers, free_ports, program};
use crate::running::RunningServer;

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
    /// Its process, which can be stopped and started again.
    pub process: RunningServer,
    port: u16,
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
        let start = move |dir| run(settings.clone(), ready.clone(), dir, port);
        Ok(Self { process: RunningServer::start(dir, start).await?, port })
    }

    /// Returns the address for clients: `http://127.0.0.1:<port>/nacos`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/nacos", self.port)
    }
}

/// Starts rnacos. It makes its user once, and not at all if it is too slow at that moment: then it is started again, without
/// its state.
async fn run(settings: Vec<String>, ready: String, dir: PathBuf, port: u16) -> Result<ServerProcess> {
    let data = dir.join("data");
    let mut args = settings;
    args.push(format!("RNACOS_DATA_DIR={}", data.display()));
    args.push(program("rnacos", Part::Nacos)?.display().to_string());
    let ready = ready.as_str();
    for _ in 0..ATTEMPTS {
        let mut process = ServerProcess::start("rnacos", "env".as_ref(), &args, &dir)?;
        // Before it has elected itself it takes no changes.
        process.await_ready(|| async move { answers(port, HEALTH).await.unwrap_or(false) }).await?;
        let is_ready = process.await_ready(|| async move { answers(port, ready).await.unwrap_or(false) });
        match tokio::time::timeout(USER_MADE, is_ready).await {
            Ok(is_ready) => return is_ready.map(|()| process),
            Err(_) => process.kill().await?,
        }
        std::fs::remove_dir_all(&data).context("remove the state of rnacos")?;
    }
    bail!("rnacos made no user in {ATTEMPTS} attempts of {} s", USER_MADE.as_secs())
}
