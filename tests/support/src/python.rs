//! Python with the packages of a `requirements.txt`, for tests of what is written in Python.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

/// Written last: an environment without it is one whose making was interrupted.
const DONE: &str = "podward-done";

/// The interpreter of a virtual environment below the folder `under` that has the packages of the file `requirements`. It is made
/// if it isn't there; several processes may ask at the same time.
///
/// # Errors
/// When there is no Python 3 with `venv`, with words on what to install; when a package can't be had.
pub async fn python_with(requirements: &Path, under: &Path) -> Result<PathBuf> {
    let (requirements, under) = (requirements.to_owned(), under.to_owned());
    tokio::task::spawn_blocking(move || make(&requirements, &under))
        .await
        .context("make a Python environment")?
}

fn make(requirements: &Path, under: &Path) -> Result<PathBuf> {
    let text = std::fs::read(requirements).with_context(|| format!("read {}", requirements.display()))?;
    let version = run(Command::new("python3").arg("--version")).map_err(|error| {
        error.context("no python3: install it (Debian, Ubuntu: `apt-get install python3 python3-venv`)")
    })?;
    let digest = Sha256::new().chain_update(&text).chain_update(version).finalize();
    let name: String = digest[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let dir = under.join(format!("python-{name}"));
    let python = dir.join("bin/python");
    std::fs::create_dir_all(under).with_context(|| format!("make {}", under.display()))?;
    let lock = File::create(under.join(format!("python-{name}.lock"))).context("make a lock")?;
    lock.lock().context("wait for another process that makes the same Python environment")?;
    if dir.join(DONE).exists() {
        return Ok(python);
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&dir)).map_err(|error| {
        error.context("python3 can't make virtual environments: install `venv` (Debian, Ubuntu: `apt-get install python3-venv`)")
    })?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
    run(Command::new(&python).args(pip).arg(requirements))
        .with_context(|| format!("install the packages of {}", requirements.display()))?;
    File::create(dir.join(DONE)).context("mark the Python environment as done")?;
    Ok(python)
}

/// Runs it to its end, and gives what it wrote.
fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = if text.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { text };
        bail!("{command:?} ended with {}: {}", output.status, text.trim());
    }
    Ok(output.stdout)
}
