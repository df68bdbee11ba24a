//! A running example.

use std::{
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use podward_support::PythonExamples;
use tokio::{
    io::{AsyncBufReadExt, AsyncRead, BufReader},
    process::{Child, Command},
    sync::{OnceCell, watch},
    time::timeout,
};

pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// The examples.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Example {
    RustServer,
    PythonServer,
    PythonAttached,
}

/// A running example. Dropping it kills the process.
pub(crate) struct Program {
    child: Child,
    lines: watch::Receiver<Vec<String>>,
}

impl Example {
    pub(crate) async fn start(self, args: &[String], env: &[(&str, &Path)]) -> Program {
        let mut command = match self {
            Self::RustServer => Command::new(env!("CARGO_BIN_EXE_example-hook-server")),
            Self::PythonServer => python("server.py", None).await,
            Self::PythonAttached => python("attach.py", None).await,
        };
        command.args(args).envs(env.iter().copied());
        self.spawn(command)
    }

    /// Starts an example in Python that gets SIGTERM each time it waits for an event.
    pub(crate) async fn start_interrupted(self, args: &[String]) -> Program {
        let by = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/examples/interrupted.py");
        let mut command = match self {
            Self::RustServer => panic!("it isn't written in Python"),
            Self::PythonServer => python("server.py", Some(&by)).await,
            Self::PythonAttached => python("attach.py", Some(&by)).await,
        };
        command.args(args);
        self.spawn(command)
    }

    fn spawn(self, mut command: Command) -> Program {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("start {self:?}: {error}"));
        let (sender, lines) = watch::channel(Vec::new());
        collect(child.stdout.take().unwrap(), sender.clone());
        collect(child.stderr.take().unwrap(), sender);
        Program { child, lines }
    }
}

/// The command that runs `script`, by the Python program `by` if there is one.
async fn python(script: &str, by: Option<&Path>) -> Command {
    static READY: OnceCell<PythonExamples> = OnceCell::const_new();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let examples = READY.get_or_init(|| async {
        PythonExamples::prepare(target).await.unwrap_or_else(|error| panic!("{error:#}"))
    });
    let (program, mut args) = examples.await.command(script);
    if let Some(by) = by {
        args.insert(args.len() - 1, by.display().to_string());
    }
    let mut command = Command::new(program);
    command.args(args);
    command
}

fn collect(from: impl AsyncRead + Unpin + Send + 'static, into: watch::Sender<Vec<String>>) {
    tokio::spawn(async move {
        let mut from = BufReader::new(from).lines();
        while let Ok(Some(line)) = from.next_line().await {
            into.send_modify(|lines| lines.push(line));
        }
    });
}

impl Program {
    /// Waits until the output contains a line that begins with `beginning`, and returns the rest of the line.
    pub(crate) async fn says(&mut self, beginning: &str) -> String {
        self.says_times(beginning, 1).await
    }

    /// Waits for the `times`-th line that begins with `beginning`, and returns the rest of it.
    pub(crate) async fn says_times(&mut self, beginning: &str, times: usize) -> String {
        let what = format!("{beginning:?} for the {times}. time");
        self.until(&what, |lines| {
            lines.iter().filter_map(|line| line.strip_prefix(beginning)).nth(times - 1).map(str::to_owned)
        })
        .await
    }

    /// Waits until the output contains `text`.
    pub(crate) async fn mentions(&mut self, text: &str) {
        self.until(text, |lines| lines.iter().any(|line| line.contains(text)).then_some(())).await;
    }

    async fn until<T>(&mut self, what: &str, found: impl Fn(&[String]) -> Option<T>) -> T {
        let seen = timeout(TIMEOUT, self.lines.wait_for(|lines| found(lines).is_some())).await;
        if let Ok(Ok(lines)) = &seen
            && let Some(found) = found(lines)
        {
            return found;
        }
        drop(seen);
        panic!("the output does not contain {what}; it is:\n{}", self.log())
    }

    pub(crate) fn log(&self) -> String {
        self.lines.borrow().join("\n")
    }

    /// Sends SIGTERM, and waits until the process ends with success.
    pub(crate) async fn stop(mut self) {
        let pid = i32::try_from(self.child.id().expect("the program has already ended")).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let status = self.ended().await;
        assert!(status.success(), "ended with {status}; its output:\n{}", self.log());
    }

    /// Sends SIGKILL, and waits until the process ends.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits until the process ends and its output is complete.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let Ok(status) = timeout(TIMEOUT, self.child.wait()).await else {
            panic!("the program did not end; its output:\n{}", self.log());
        };
        while self.lines.changed().await.is_ok() {}
        status.unwrap()
    }
}
