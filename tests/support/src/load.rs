//! A crowd of clients of a Service, run beside the cluster's nodes, or as a pod where that is no place to start programs.

mod pod;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use anyhow::{Context, Result, ensure};
use demo_client::{Connections, LoadReport, Report};
use hyper::StatusCode;

use self::pod::ClientPod;
use crate::{
    ask,
    cluster::{Cluster, ServiceCommand, ServiceProcess},
    wait::{WAIT, within},
};

/// How often a load that begins is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long a new Service may take until it answers, in seconds.
const AWAIT_FIRST: &str = "30";

/// What a load does.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// The program `demo-client`, see [`DemoImages::client`](crate::DemoImages::client).
    pub program: PathBuf,
    /// Where there is no place for a program: the image that has it.
    pub image: String,
    /// Address and port of the Service.
    pub target: SocketAddr,
    /// What is asked for.
    pub path: String,
    /// How connections are used; each way gets the full rate.
    pub connections: Vec<Connections>,
    /// Requests a second.
    pub rate: u32,
}

/// A load. It goes on until it is stopped, or for ten minutes.
#[derive(Debug)]
pub struct Load {
    cluster: Cluster,
    rate: u32,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Process { process: ServiceProcess, control: SocketAddr },
    Pod(ClientPod),
}

impl Load {
    /// Starts a load and waits until it has gone on for a second.
    ///
    /// # Errors
    /// When it can't be started, or the Service gives no good answer.
    pub async fn start(cluster: &Cluster, options: LoadOptions) -> Result<Self> {
        let mut args = vec!["--target".to_owned(), options.target.to_string()];
        args.extend(["--path".to_owned(), options.path, "--rate".to_owned(), options.rate.to_string()]);
        args.extend(["--await-first".to_owned(), AWAIT_FIRST.to_owned()]);
        args.extend(options.connections.iter().flat_map(|how| ["--connections".to_owned(), how.to_string()]));
        let place = if cluster.bed().is_some() {
            let control = cluster.free_address().await?;
            args.extend(["--control".to_owned(), control.to_string()]);
            let command = ServiceCommand { name: "demo-client".to_owned(), program: options.program, args };
            Place::Process { process: cluster.spawn(command).await?, control }
        } else {
            Place::Pod(ClientPod::start(&cluster.client(), &options.image, args).await?)
        };
        let mut load = Self { cluster: cluster.clone(), rate: options.rate, place };
        let what = || format!("a load of {} requests a second on {}", options.rate, options.target);
        within(WAIT, what, load.under_way()).await.with_context(|| load.last_words())?;
        Ok(load)
    }

    async fn under_way(&mut self) -> Result<()> {
        loop {
            let runs = |load: &LoadReport| load.requests >= u64::from(self.rate);
            // Until it listens there is no answer.
            if self.report().await.is_ok_and(|report| report.loads.iter().all(runs)) {
                return Ok(());
            }
            if let Place::Process { process, .. } = &mut self.place {
                ensure!(process.is_running(), "the load client ended");
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// What has become of it so far.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub async fn report(&self) -> Result<Report> {
        self.ask("/report").await
    }

    /// Ends it, and tells what has become of all its requests.
    ///
    /// # Errors
    /// When it doesn't answer.
    pub async fn stop(self) -> Result<Report> {
        let report = within(WAIT, || "the report of a load".to_owned(), self.ask("/stop")).await;
        if let Place::Pod(pod) = &self.place {
            pod.remove().await?;
        }
        report.with_context(|| self.last_words())
    }

    async fn ask(&self, path: &str) -> Result<Report> {
        let text = match &self.place {
            Place::Process { control, .. } => {
                let (status, text) = ask::get(&self.cluster, *control, path).await?;
                ensure!(status == StatusCode::OK, "the load client answers {status} to {path}");
                text
            }
            Place::Pod(pod) => pod.ask(path).await?,
        };
        serde_json::from_str(&text).with_context(|| format!("understand the load client's {path}: {text}"))
    }

    fn last_words(&self) -> String {
        match &self.place {
            Place::Process { process, .. } => {
                format!("the load client ({}) says:\n{}", process.log_path().display(), process.log_tail(10))
            }
            Place::Pod(pod) => format!("the load client is {}", pod.describe()),
        }
    }
}
