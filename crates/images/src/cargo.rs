//! The `cargo` command and the folder of the workspace.

use std::path::{Path, PathBuf};

use tokio::process::Command;

/// Returns the folder of the workspace that this crate was compiled in.
#[must_use]
pub fn workspace_dir() -> PathBuf {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    crate_dir.ancestors().nth(2).unwrap_or(crate_dir).to_owned()
}

/// Returns a command that runs, in the folder of the workspace, the `cargo` that started this program.
///
/// The command does not inherit the `CARGO_PKG_*` and `CARGO_MANIFEST_*` variables that cargo sets for the programs it
/// runs. Build scripts (for example that of ring) run again when these variables change, and every crate that depends
/// on them is compiled again. With the variables, a build within `cargo xtask` or `cargo test` would undo the results
/// of a plain `cargo build`, and the other way round.
#[must_use]
pub fn cargo() -> Command {
    // Cargo sets CARGO for the programs it runs. It is the cargo of the pinned toolchain.
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.current_dir(workspace_dir()).kill_on_drop(true);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_folder_contains_the_lock_file() {
        assert!(workspace_dir().join("Cargo.lock").exists());
    }
}
