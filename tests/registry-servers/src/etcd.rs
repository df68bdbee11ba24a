//! etcd.

use std::path::PathBuf;

use anyhow::{Context, Result};
use podward_testbed::Part;
use tokio::net::TcpStream;

use crate::certificates::TestCertificates;
use crate::process::{ServerProcess, free_ports, program};
use crate::running::RunningServer;

/// A member of etcd, whose state is in a folder.
#[derive(Debug)]
pub struct EtcdServer {
    /// Its process, which can be stopped and started again.
    pub process: RunningServer,
    port: u16,
    scheme: &'static str,
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
        let process = RunningServer::start(dir, move |dir| run(args.clone(), dir, port)).await?;
        Ok(Self { process, port, scheme })
    }

    /// Returns its address: `127.0.0.1:<port>`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Returns the URL of its HTTP interface.
    pub fn url(&self) -> String {
        format!("{}://{}", self.scheme, self.address())
    }
}

async fn run(args: Vec<String>, dir: PathBuf, port: u16) -> Result<ServerProcess> {
    let program = program("etcd", Part::ControlPlane)?;
    let mut process = ServerProcess::start("etcd", &program, &args, &dir)?;
    process.await_ready(|| async move { TcpStream::connect(("127.0.0.1", port)).await.is_ok() }).await?;
    Ok(process)
}
