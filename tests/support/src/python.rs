//! The Python examples, and an environment with their packages.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail};
use podward_images::workspace_dir;
use sha2::{Digest, Sha256};

/// The file that is written last. A folder without it is incomplete.
const DONE: &str = "podward-done";
const PROTO: [&str; 2] = ["proto/podward/v1/hook.proto", "proto/podward/v1/lifecycle.proto"];

/// The programs in `deploy/examples/hook-server-python`, ready to run.
#[derive(Clone, Debug)]
pub struct PythonExamples {
    python: PathBuf,
    modules: PathBuf,
    dir: PathBuf,
}

impl PythonExamples {
    /// Creates the environment below the folder `under`, unless it exists: the packages, and the modules of the gRPC
    /// interface. Several processes can call this at the same time.
    ///
    /// # Errors
    /// Fails if there is no Python 3 with `venv`, a package is not available, or `generate.sh` fails.
    pub async fn prepare(under: &Path) -> Result<Self> {
        let under = under.to_owned();
        tokio::task::spawn_blocking(move || prepare(&under))
            .await
            .context("prepare the examples in Python")?
    }

    /// Returns the program and the arguments that run `script`, `server.py` or `attach.py`. Its own arguments follow.
    #[must_use]
    pub fn command(&self, script: &str) -> (PathBuf, Vec<String>) {
        let path = format!("PYTHONPATH={}", self.modules.display());
        let script = self.dir.join(script).display().to_string();
        // `-B`: no `__pycache__` beside the sources.
        let arguments = vec![path, self.python.display().to_string(), "-B".to_owned(), script];
        (PathBuf::from("/usr/bin/env"), arguments)
    }
}

fn prepare(under: &Path) -> Result<PythonExamples> {
    let dir = workspace_dir().join("deploy/examples/hook-server-python");
    let requirements = dir.join("requirements.txt");
    let version = run(Command::new("python3").arg("--version")).map_err(|error| {
        error.context("no python3: install it (Debian, Ubuntu: `apt-get install python3 python3-venv`)")
    })?;
    let environment = once(under, "python", &[&read(&requirements)?, &version], |environment| {
        run(Command::new("python3").args(["-m", "venv"]).arg(environment)).map_err(|error| {
            error.context(
                "python3 can't make virtual environments: install `venv` (Debian, Ubuntu: `apt-get install python3-venv`)",
            )
        })?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement"];
        let installed = run(Command::new(environment.join("bin/python")).args(pip).arg(&requirements));
        installed.with_context(|| format!("install the packages of {}", requirements.display())).map(drop)
    })?;
    let python = environment.join("bin/python");
    let mut sources = vec![read(&requirements)?];
    for file in PROTO {
        sources.push(read(&workspace_dir().join(file))?);
    }
    let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
    let modules = once(under, "python-modules", &sources, |modules| {
        run(Command::new(dir.join("generate.sh")).arg(modules).env("PYTHON", &python)).map(drop)
    })?;
    Ok(PythonExamples { python, modules, dir })
}

/// Creates a folder once for these `inputs`.
fn once(
    under: &Path,
    name: &str,
    inputs: &[&[u8]],
    make: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let digest = inputs.iter().fold(Sha256::new(), |digest, input| digest.chain_update(input)).finalize();
    let digest: String = digest[..6].iter().map(|byte| format!("{byte:02x}")).collect();
    let dir = under.join(format!("{name}-{digest}"));
    fs::create_dir_all(under).with_context(|| format!("make {}", under.display()))?;
    let lock = dir.with_extension("lock");
    let lock = File::create(&lock).with_context(|| format!("make {}", lock.display()))?;
    lock.lock().with_context(|| format!("wait for another process that makes {}", dir.display()))?;
    if !dir.join(DONE).exists() {
        if dir.exists() {
            fs::remove_dir_all(&dir).with_context(|| format!("remove half of {}", dir.display()))?;
        }
        fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
        make(&dir)?;
        File::create(dir.join(DONE)).with_context(|| format!("mark {} as done", dir.display()))?;
    }
    Ok(dir)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("read {}", path.display()))
}

/// Runs the command to its end and returns its output.
fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = if text.trim().is_empty() { String::from_utf8_lossy(&output.stdout) } else { text };
        bail!("{command:?} ended with {}: {}", output.status, text.trim());
    }
    Ok(output.stdout)
}
