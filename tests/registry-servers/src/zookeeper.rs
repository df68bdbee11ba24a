//! ZooKeeper.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use podward_testbed::{Part, Tools};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::process::{ServerProcess, free_ports};
use crate::running::RunningServer;

const MAIN: &str = "org.apache.zookeeper.server.quorum.QuorumPeerMain";

/// The time for an answer, after which the question is repeated.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a ZooKeeper is started.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZooKeeperServerOptions {
    /// The longest timeout of a session. `None` for the default of 40 s.
    pub session_timeout: Option<Duration>,
}

/// A ZooKeeper server, whose state is in a folder.
#[derive(Debug)]
pub struct ZooKeeperServer {
    /// Its process, which can be stopped and started again.
    pub process: RunningServer,
    port: u16,
}

impl ZooKeeperServer {
    /// Starts a server, and waits until it serves.
    ///
    /// # Errors
    /// Fails if ZooKeeper is not fetched, or does not become ready.
    pub async fn start(options: ZooKeeperServerOptions) -> Result<Self> {
        let [port] = free_ports()?;
        Self::member(port, 1, &[], options).await
    }

    /// Starts three servers that replicate their state.
    ///
    /// # Errors
    /// Fails if ZooKeeper is not fetched, or does not become ready.
    pub async fn start_three() -> Result<[Self; 3]> {
        let [c1, c2, c3, p1, p2, p3, e1, e2, e3] = free_ports()?;
        let member = |id: u8, peer: u16, election: u16| format!("server.{id}=127.0.0.1:{peer}:{election}");
        let members = [member(1, p1, e1), member(2, p2, e2), member(3, p3, e3)];
        let options = ZooKeeperServerOptions::default();
        let (m1, m2, m3) = tokio::try_join!(
            Self::member(c1, 1, &members, options),
            Self::member(c2, 2, &members, options),
            Self::member(c3, 3, &members, options),
        )?;
        Ok([m1, m2, m3])
    }

    async fn member(port: u16, id: u8, members: &[String], options: ZooKeeperServerOptions) -> Result<Self> {
        let tools = Tools::cached()?;
        if !tools.is_complete(&[Part::ZooKeeper]) {
            bail!(
                "ZooKeeper is not fetched; run `cargo xtask testbed build`, or the tests by `cargo xtask test`"
            );
        }
        let dir = tempfile::tempdir().context("make a folder for ZooKeeper")?;
        let mut settings = vec![
            "dataDir=data".to_owned(),
            "clientPortAddress=127.0.0.1".to_owned(),
            format!("clientPort={port}"),
            "admin.enableServer=false".to_owned(),
            "maxClientCnxns=0".to_owned(),
            "tickTime=2000".to_owned(),
            // In ticks: a busy machine may be slow.
            "initLimit=30".to_owned(),
            "syncLimit=30".to_owned(),
        ];
        settings.extend_from_slice(members);
        if let Some(timeout) = options.session_timeout {
            let timeout = timeout.as_millis();
            settings.extend([format!("minSessionTimeout={timeout}"), format!("maxSessionTimeout={timeout}")]);
        }
        std::fs::write(dir.path().join("zoo.cfg"), settings.join("\n")).context("write zoo.cfg")?;
        std::fs::create_dir(dir.path().join("data")).context("make ZooKeeper's folder")?;
        std::fs::write(dir.path().join("data/myid"), id.to_string()).context("write myid")?;
        let class_path = tools.java_class_path(Part::ZooKeeper);
        let class_path = class_path.into_string().ok().context("the cache folder's name is not UTF-8")?;
        let args = [
            "-Xmx128m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            // A test needs no state after a power failure.
            "-Dzookeeper.forceSync=no",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-cp",
            &class_path,
            MAIN,
            "zoo.cfg",
        ];
        let args = args.map(str::to_owned).to_vec();
        let process = RunningServer::start(dir, move |dir| run(args.clone(), dir, port)).await?;
        Ok(Self { process, port })
    }

    /// Returns its address: `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

async fn run(args: Vec<String>, dir: PathBuf, port: u16) -> Result<ServerProcess> {
    let mut process = ServerProcess::start("zookeeper", Path::new("java"), &args, &dir)?;
    process.await_ready(|| async move { serves(port).await.unwrap_or(false) }).await?;
    Ok(process)
}

/// The port is open before there is a leader. Some connections of the first moment are never closed by the server.
async fn serves(port: u16) -> Result<bool> {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.write_all(b"srvr").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer.contains("Mode: "))
    };
    tokio::time::timeout(PATIENCE, ask).await.context("no answer")?
}
