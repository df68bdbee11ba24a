//! Starts a bed's keeper, and holds what keeps it alive.

use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use crate::{
    error::{BedError, During},
    keeper::Report,
    process::tail,
    state::{Layout, Live, Record, lock_base, sweep},
};

/// How long an orderly end may take before it is called a failure.
const END_TIMEOUT: Duration = Duration::from_secs(30);

/// The owner's hold on a bed: the keeper ends the bed when `pipe` is closed, which the kernel does if nobody else.
pub(crate) struct Owned {
    child: Child,
    pipe: ChildStdin,
}

impl Owned {
    /// Ends the bed and waits until nothing is left of it. Blocks.
    pub(crate) fn end(self, layout: &Layout) -> Result<(), BedError> {
        let Owned { mut child, pipe } = self;
        drop(pipe);
        let status = child.wait().during(|| "wait for the keeper".to_owned())?;
        if status.success() && !layout.dir.exists() {
            return Ok(());
        }
        let message = format!("it ended with {status}: {}", keeper_log(layout));
        Err(BedError::Keeper { bed: layout.dir.display().to_string(), message })
    }

    /// Ends the bed without waiting.
    pub(crate) fn let_go(self) {
        let Owned { mut child, pipe } = self;
        drop(pipe);
        // Collects the keeper's exit status; if the owner ends before that, init of the machine does.
        std::thread::spawn(move || child.wait());
    }

    /// Leaves the bed to itself. The keeper must have been told.
    pub(crate) fn detach(self) {
        self.let_go();
    }
}

fn keeper_log(layout: &Layout) -> String {
    tail(&layout.dir.join("keeper.log"), 20).unwrap_or_default()
}

/// Makes a new bed's folders.
pub(crate) fn make_folders(base: &Path, name: &str) -> Result<(Layout, PathBuf), BedError> {
    let dir = tempfile::Builder::new().prefix(&format!("{name}-")).rand_bytes(6).tempdir_in(base);
    let dir = dir.during(|| format!("make a bed's folder in {}", base.display()))?.keep();
    let logs = base.join("logs").join(dir.file_name().unwrap_or_default());
    std::fs::create_dir_all(&logs).during(|| format!("make {}", logs.display()))?;
    Ok((Layout::new(dir), logs))
}

/// Starts the keeper of the bed that `record` describes, and waits until the namespaces are there. Blocks.
pub(crate) fn launch(base: &Path, layout: &Layout, record: &Record) -> Result<(Owned, Live), BedError> {
    let program = keeper_program()?;
    let _making = lock_base(base)?;
    sweep(base);
    layout.write(record)?;
    let path = layout.dir.join("keeper.log");
    let log = File::create(&path).during(|| format!("make {}", path.display()))?;
    let mut command = Command::new(&program);
    command.arg("keep").arg(&layout.dir).current_dir("/");
    // What runs inside must not find the cluster that the user works with outside.
    command.env_remove("KUBECONFIG");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().during(|| format!("run {}", program.display()))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        let read = BufReader::new(output).read_line(&mut line);
        read.during(|| "hear from the keeper".to_owned())?;
    }
    let failed = |message| BedError::Keeper { bed: record.id.clone(), message };
    match (serde_json::from_str(&line), child.stdin.take()) {
        (Ok(Report::Ready(live)), Some(pipe)) => Ok((Owned { child, pipe }, live)),
        (Ok(Report::Failed(message)), _) => {
            let _ = child.wait();
            Err(failed(message))
        }
        _ => {
            let status = child.wait().during(|| "wait for the keeper".to_owned())?;
            Err(failed(format!("it ended with {status}: {}", keeper_log(layout))))
        }
    }
}

/// Waits until a bed that has been told to end is gone. Blocks.
pub(crate) fn wait_gone(layout: &Layout) -> Result<(), BedError> {
    let deadline = Instant::now() + END_TIMEOUT;
    while layout.dir.exists() {
        if Instant::now() >= deadline {
            let message =
                format!("it has not ended after {} s: {}", END_TIMEOUT.as_secs(), keeper_log(layout));
            return Err(BedError::Keeper { bed: layout.dir.display().to_string(), message });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Finds the program `podward-testbed`: `PODWARD_TESTBED_BIN`, or beside the running program; tests and examples are
/// one folder further down.
fn keeper_program() -> Result<PathBuf, BedError> {
    if let Some(path) = std::env::var_os("PODWARD_TESTBED_BIN") {
        return Ok(path.into());
    }
    let own = std::env::current_exe().during(|| "find the running program".to_owned())?;
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("podward-testbed")).find(|path| path.is_file());
    found.ok_or(BedError::NoKeeper { searched: own })
}
