//! Measures the memory of a process. It searches the processes of this machine, because processes of a test cluster
//! and of its containers have other ids inside.

use std::path::Path;

use anyhow::{Context, Result};

/// Returns the resident memory, in bytes, of the process whose command line has `args` after the program.
pub(crate) fn of_command(args: &[String]) -> Result<u64> {
    of(|dir| {
        // A process that has ended has no command line.
        let Ok(bytes) = std::fs::read(dir.join("cmdline")) else { return false };
        let text = String::from_utf8_lossy(&bytes);
        let mut given = text.split('\0').skip(1);
        !args.is_empty() && args.iter().all(|arg| given.next() == Some(arg))
    })
}

/// Returns the resident memory, in bytes, of the process in the container `id`. The containers of Podward's services
/// have one process each.
pub(crate) fn of_container(id: &str) -> Result<u64> {
    of(|dir| std::fs::read_to_string(dir.join("cgroup")).is_ok_and(|groups| groups.contains(id)))
}

fn of(is_it: impl Fn(&Path) -> bool) -> Result<u64> {
    for entry in std::fs::read_dir("/proc").context("read /proc")? {
        let dir = entry?.path();
        if !is_it(&dir) {
            continue;
        }
        let path = dir.join("status");
        let status = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS")?;
        return Ok(kib * 1024);
    }
    anyhow::bail!("no such process runs here")
}
