//! etcd.

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use podward_testbed::Part;
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::certificates::TestCertificates;
use crate::process::{ServerProcess, free_ports, program};

/// A member of etcd, whose state is in a folder.
#[derive(Debug)]
pub struct EtcdServer {
    process: ServerProcess,
    args: Vec<String>,
    port: u16,
    scheme: &'static str,
    dir: TempDir,
}

impl EtcdServer {
    /// Starts a server, and waits until it accepts connections. With `tls` it requires clients to have a certificate of the
    /// same authority.
    ///
    /// # Errors
    /// Fails if etcd is not built, or does not become ready.
    pub async fn start(tls: Option<&TestCertificates>) -> Result<Self> {
        let [client, peer] = free_ports()?;
        Self::member("only", &format!("only=http://127.0.0.1:{peer}"), client, peer, tls).await
    }

    /// Starts three servers that replicate their state.
    ///
    /// # Errors
    /// Fails if etcd is not built, or does not become ready.
    pub async fn start_three() -> Result<[Self; 3]> {
        let [c1, c2, c3, p1, p2, p3] = free_ports()?;
        let cluster = format!("m1=http://127.0.0.1:{p1},m2=http://127.0.0.1:{p2},m3=http://127.0.0.1:{p3}");
        let (m1, m2, m3) = tokio::try_join!(
            Self::member("m1", &cluster, c1, p1, None),
            Self::member("m2", &cluster, c2, p2, None),
            Self::member("m3", &cluster, c3, p3, None),
        )?;
        Ok([m1, m2, m3])
    }

    async fn member(
        name: &str,
        cluster: &str,
        port: u16,
        peer: u16,
        tls: Option<&TestCertificates>,
    ) -> Result<Self> {
        let dir = tempfile::tempdir().context("make a folder for etcd")?;
        let scheme = if tls.is_some() { "https" } else { "http" };
        let mut args = vec![
            format!("--name={name}"),
            format!("--initial-cluster={cluster}"),
            format!("--listen-client-urls={scheme}://127.0.0.1:{port}"),
            format!("--advertise-client-urls={scheme}://127.0.0.1:{port}"),
            format!("--listen-peer-urls=http://127.0.0.1:{peer}"),
            format!("--initial-advertise-peer-urls=http://127.0.0.1:{peer}"),
            "--data-dir=data".to_owned(),
            "--log-level=warn".to_owned(),
            "--unsafe-no-fsync".to_owned(),
        ];
        if let Some(tls) = tls {
            tls.write_into(dir.path())?;
            let files = ["--cert-file=cert.pem", "--key-file=key.pem", "--trusted-ca-file=ca.pem"];
            args.extend(files.map(str::to_owned));
            args.push("--client-cert-auth".to_owned());
        }
        let process = run(&args, &dir, port).await?;
        Ok(Self { process, args, port, scheme, dir })
    }

    /// Returns its address: `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL of its HTTP interface.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
    }

    /// Kills the server.
    ///
    /// # Errors
    /// Fails if it cannot be killed.
    pub async fn stop(&mut self) -> Result<()> {
        self.process.kill().await
    }

    /// Kills the server and starts it again, with its state.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill().await?;
        self.process = run(&self.args, &self.dir, self.port).await?;
        Ok(())
    }

    /// Kills the server and starts it again, without its state. Only for a server that was started alone.
    ///
    /// # Errors
    /// Fails if it does not become ready.
    pub async fn restart_empty(&mut self) -> Result<()> {
        self.process.kill().await?;
        std::fs::remove_dir_all(self.dir.path().join("data")).context("remove the state of etcd")?;
        self.process = run(&self.args, &self.dir, self.port).await?;
        Ok(())
    }

    /// Stops the server's processing, until [`resume`](Self::resume): it accepts connections, and does not answer.
    ///
    /// # Errors
    /// Fails if it has ended.
    pub fn pause(&self) -> Result<()> {
        self.process.signal(Signal::SIGSTOP)
    }

    /// Lets the server go on.
    ///
    /// # Errors
    /// Fails if it has ended.
    pub fn resume(&self) -> Result<()> {
        self.process.signal(Signal::SIGCONT)
    }
}

async fn run(args: &[String], dir: &TempDir, port: u16) -> Result<ServerProcess> {
    let program = program("etcd", Part::ControlPlane)?;
    let mut process = ServerProcess::start("etcd", &program, args, dir.path())?;
    process.await_ready(|| async move { TcpStream::connect(("127.0.0.1", port)).await.is_ok() }).await?;
    Ok(process)
}
