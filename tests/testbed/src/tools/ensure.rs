//! Builds the missing programs of the cache folder.

use std::path::Path;

use super::cache::Tools;
use super::error::ToolsError;
use super::part::Part;
use super::progress::{Planned, Progress};
use super::{debian, golang, lock, maven, pins, preflight, rust, system};

impl Tools {
    /// Builds the programs of `parts` that are not in the cache folder, and returns the folder.
    ///
    /// Everything is built beside its final path and then renamed, so that a killed build leaves nothing incomplete.
    /// Two processes never build at once: the second one waits, names the first one, and uses its results. If nothing
    /// is missing, this checks about a dozen files and starts no process.
    ///
    /// # Errors
    /// Fails with [`ToolsError::Missing`] before anything is built if the machine lacks requirements of the build.
    /// Fails with another variant if a step fails.
    pub async fn ensure(parts: &[Part], progress: &Progress) -> Result<Self, ToolsError> {
        let tools = Self::cached()?;
        if tools.is_complete(parts) {
            return Ok(tools);
        }
        let missing = preflight::for_build(parts, &tools);
        if !missing.is_empty() {
            return Err(ToolsError::Missing(missing));
        }
        std::fs::create_dir_all(&tools.dir).map_err(|e| ToolsError::io("create", &tools.dir, e))?;
        let _lock = lock::acquire(&tools.dir.with_extension("lock"), progress).await?;
        sweep(&tools.dir)?;

        let mut steps: Vec<Planned> = Vec::new();
        let programs: Vec<_> = pins::programs(parts).filter(|p| !tools.has(p)).collect();
        let packages =
            parts.contains(&Part::Node) && !debian::is_unpacked(&tools.dir) && !system::has_node_programs();
        if packages {
            steps.push(Planned::new(debian::STEP, debian::EXPECTED));
        }
        let archives: Vec<_> = maven::PARTS
            .into_iter()
            .filter(|(part, _)| parts.contains(part) && !maven::is_fetched(&tools.dir, *part))
            .collect();
        steps.extend(archives.iter().map(|(_, step)| Planned::new(step, maven::EXPECTED)));
        let is_crate_missing = parts.iter().any(|part| !rust::is_built(&tools.dir, *part));
        if is_crate_missing {
            steps.push(Planned::new(rust::STEP, rust::EXPECTED));
        }
        steps.extend(programs.iter().map(|p| Planned::compile(p.name, p.cold_seconds)));
        progress.plan(steps);

        if packages {
            debian::unpack(&tools.dir, progress).await?;
        }
        for archives in archives {
            maven::fetch(&tools.dir, archives, progress).await?;
        }
        if is_crate_missing {
            rust::build(&tools.dir, progress).await?;
        }
        golang::build(&tools.dir, &programs, progress).await?;
        Ok(tools)
    }
}

/// Removes the work folders of killed builds. The caller must hold the lock.
fn sweep(dir: &Path) -> Result<(), ToolsError> {
    for entry in std::fs::read_dir(dir).map_err(|e| ToolsError::io("list", dir, e))? {
        let path = entry.map_err(|e| ToolsError::io("list", dir, e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("build-") || name.starts_with("deb-") {
            std::fs::remove_dir_all(&path).map_err(|e| ToolsError::io("remove the leftover", &path, e))?;
        }
    }
    Ok(())
}
