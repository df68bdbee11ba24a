//! The memory of a process that was started with given arguments. Those of a bed have other ids inside than here.

use anyhow::{Context, Result};

/// Resident memory of the process whose command line has `args` after the program, in bytes.
pub(super) fn of(args: &[String]) -> Result<u64> {
    for entry in std::fs::read_dir("/proc").context("read /proc")? {
        let dir = entry?.path();
        // What is no process, or none any more, has no command line.
        let Ok(bytes) = std::fs::read(dir.join("cmdline")) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let mut given = text.split('\0').skip(1);
        if args.is_empty() || !args.iter().all(|arg| given.next() == Some(arg)) {
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
