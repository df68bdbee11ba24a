//! The CPU time and memory of a service's process.

use std::path::Path;

use anyhow::{Context, Result};
use podward_support::{Podward, PodwardService, ServiceKind};
use podward_testbed::TestCluster;

/// The unit of CPU time in `/proc`, in milliseconds (USER_HZ is 100 on all current Linux systems).
const TICK_MS: f64 = 10.0;

/// A process to measure.
pub(crate) struct Usage {
    pid: u32,
    what: String,
}

impl Usage {
    /// Returns the process of the service `kind` of this cluster.
    pub(crate) fn of(podward: &Podward, kind: ServiceKind) -> Result<Usage> {
        Self::find(&kind.to_string(), &podward.cluster().dir(), |_| true)
    }

    /// Returns the process of this replica of a service that has a leader.
    pub(crate) fn of_replica(podward: &Podward, replica: &PodwardService) -> Result<Usage> {
        // Its name is the UID of its pod, which is one of its arguments.
        Self::find(replica.kind().as_str(), &podward.cluster().dir(), |argument| argument == replica.name())
    }

    /// Returns the API server of `cluster`.
    pub(crate) fn of_api_server(cluster: &TestCluster) -> Result<Usage> {
        Self::find("kube-apiserver", cluster.dir(), |_| true)
    }

    /// Returns the process of a program. Its arguments contain the folder of its cluster, which distinguishes it from those
    /// of other clusters, and one for which `test` is true.
    fn find(what: &str, folder: &Path, test: impl Fn(&str) -> bool) -> Result<Usage> {
        let program = format!("/{what}");
        let files = folder.to_string_lossy();
        let is_it = |arguments: &[&str]| {
            arguments.first().is_some_and(|first| first.ends_with(&program))
                && arguments.iter().any(|argument| argument.contains(&*files))
                && arguments.iter().any(|argument| test(argument))
        };
        for entry in std::fs::read_dir("/proc").context("read /proc")? {
            let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let Ok(bytes) = std::fs::read(format!("/proc/{pid}/cmdline")) else { continue };
            let text = String::from_utf8_lossy(&bytes);
            if is_it(&text.split('\0').collect::<Vec<_>>()) {
                return Ok(Usage { pid, what: what.to_owned() });
            }
        }
        anyhow::bail!("no process of {what} is running")
    }

    /// Returns the user and system time since its start, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> Result<f64> {
        let stat = self.read("stat")?;
        // The command's name may contain spaces. The fields after its closing bracket are 3 and on (proc(5)).
        let (_, fields) = stat.rsplit_once(") ").context("read /proc/PID/stat")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
        let (user, system) = (ticks(11).context("no utime")?, ticks(12).context("no stime")?);
        Ok((user + system) * TICK_MS)
    }

    /// Returns the resident memory, in MiB.
    pub(crate) fn rss_mib(&self) -> Result<f64> {
        self.memory_mib("VmRSS:")
    }

    /// Returns the peak resident memory since its start, in MiB.
    pub(crate) fn peak_rss_mib(&self) -> Result<f64> {
        self.memory_mib("VmHWM:")
    }

    fn memory_mib(&self, field: &str) -> Result<f64> {
        let status = self.read("status")?;
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        let kib = number.with_context(|| format!("no {field} in /proc/{}/status", self.pid))?;
        Ok(kib / 1024.0)
    }

    fn read(&self, file: &str) -> Result<String> {
        let path = format!("/proc/{}/{file}", self.pid);
        std::fs::read_to_string(&path).with_context(|| format!("read {path} of {}", self.what))
    }
}
