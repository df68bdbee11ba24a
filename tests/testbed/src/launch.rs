//! Starts a cluster's supervisor and keeps it running.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    error::{During, TestClusterError},
    process::tail,
    state::{ClusterRecord, Layout, RunningCluster, lock_base, sweep},
    supervisor::StartReport,
};

/// The longest time that an orderly end takes. After it, the end counts as failed.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// The ownership of a cluster. The supervisor ends the cluster when `pipe` is closed. The kernel closes it if the
/// owner dies.
/// nobody else.
pub(crate) struct OwnedCluster {
    child: Child,
    pipe: ChildStdin,
}

impl OwnedCluster {
    /// Ends the cluster and waits until nothing is left of it. Blocks.
    pub(crate) fn end(self, layout: &Layout) -> Result<(), TestClusterError> {
        let OwnedCluster { mut child, pipe } = self;
        drop(pipe);
        let status = child.wait().during(|| "wait for the supervisor".to_owned())?;
        if status.success() && !layout.dir.exists() {
            return Ok(());
        }
        let message = format!("it ended with {status}: {}", supervisor_log(layout));
        Err(TestClusterError::Supervisor { cluster: layout.dir.display().to_string(), message })
    }

    /// Ends the cluster without waiting.
    pub(crate) fn end_without_waiting(self) {
        let OwnedCluster { mut child, pipe } = self;
        drop(pipe);
        // Collects the exit status of the supervisor. If the owner ends first, the machine's init collects it.
        std::thread::spawn(move || child.wait());
    }

    /// Gives up the ownership without ending the cluster. The supervisor must already be detached.
    pub(crate) fn detach(self) {
        self.end_without_waiting();
    }
}

fn supervisor_log(layout: &Layout) -> String {
    tail(&layout.dir.join("supervisor.log"), 20).unwrap_or_default()
}

/// Creates the folders of a new cluster.
pub(crate) fn make_folders(base: &Path, name: &str) -> Result<(Layout, PathBuf), TestClusterError> {
    let dir = tempfile::Builder::new().prefix(&format!("{name}-")).rand_bytes(6).tempdir_in(base);
    let dir = dir.during(|| format!("make a cluster's folder in {}", base.display()))?.keep();
    let logs = base.join("logs").join(dir.file_name().unwrap_or_default());
    std::fs::create_dir_all(&logs).during(|| format!("make {}", logs.display()))?;
    Ok((Layout::new(dir), logs))
}

/// Starts the supervisor of the cluster that `record` describes, and waits until the namespaces are there. Blocks.
pub(crate) fn launch(
    base: &Path,
    layout: &Layout,
    record: &ClusterRecord,
) -> Result<(OwnedCluster, RunningCluster), TestClusterError> {
    let program = supervisor_program()?;
    let _making = lock_base(base)?;
    sweep(base);
    layout.write(record)?;
    let path = layout.dir.join("supervisor.log");
    let log = File::create(&path).during(|| format!("make {}", path.display()))?;
    let mut command = Command::new(&program);
    command.arg("keep").arg(&layout.dir).current_dir("/");
    // Processes in the cluster must not find the kubeconfig of the user's own cluster.
    command.env_remove("KUBECONFIG");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().during(|| format!("run {}", program.display()))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        let read = BufReader::new(output).read_line(&mut line);
        read.during(|| "hear from the supervisor".to_owned())?;
    }
    let failed = |message| TestClusterError::Supervisor { cluster: record.id.clone(), message };
    match (serde_json::from_str(&line), child.stdin.take()) {
        (Ok(StartReport::Ready(live)), Some(pipe)) => Ok((OwnedCluster { child, pipe }, live)),
        (Ok(StartReport::Failed(message)), _) => {
            let _ = child.wait();
            Err(failed(message))
        }
        _ => {
            let status = child.wait().during(|| "wait for the supervisor".to_owned())?;
            Err(failed(format!("it ended with {status}: {}", supervisor_log(layout))))
        }
    }
}

/// Waits until a cluster that is ending is gone. Blocks.
pub(crate) fn wait_gone(layout: &Layout) -> Result<(), TestClusterError> {
    let deadline = Instant::now() + END_TIMEOUT;
    while layout.dir.exists() {
        if Instant::now() >= deadline {
            let message =
                format!("it has not ended after {} s: {}", END_TIMEOUT.as_secs(), supervisor_log(layout));
            return Err(TestClusterError::Supervisor { cluster: layout.dir.display().to_string(), message });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the path of the program `podward-testbed`: the value of `PODWARD_TESTBED_BIN`, or the file beside the
/// running program. Tests and examples are one folder below it.
pub(crate) fn supervisor_program() -> Result<PathBuf, TestClusterError> {
    if let Some(path) = std::env::var_os("PODWARD_TESTBED_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().during(|| "find the running program".to_owned())?;
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("podward-testbed")).find(|path| path.is_file());
    found.ok_or(TestClusterError::NoSupervisor { searched: own })
}
