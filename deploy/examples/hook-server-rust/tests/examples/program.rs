//! An example that runs.

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

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Which example.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Example {
    RustServer,
    PythonServer,
    PythonAttached,
}

/// Ends by SIGKILL when it is dropped.
pub(crate) struct Program {
    child: Child,
    lines: watch::Receiver<Vec<String>>,
}

impl Example {
    pub(crate) async fn start(self, args: &[String], env: &[(&str, &Path)]) -> Program {
        let mut command = match self {
            Self::RustServer => Command::new(env!("CARGO_BIN_EXE_example-hook-server")),
            Self::PythonServer => python("server.py").await,
            Self::PythonAttached => python("attach.py").await,
        };
        command.args(args).envs(env.iter().copied());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().unwrap_or_else(|error| panic!("start {self:?}: {error}"));
        let (sender, lines) = watch::channel(Vec::new());
        collect(child.stdout.take().unwrap(), sender.clone());
        collect(child.stderr.take().unwrap(), sender);
        Program { child, lines }
    }
}

async fn python(script: &str) -> Command {
    static READY: OnceCell<PythonExamples> = OnceCell::const_new();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let examples = READY.get_or_init(|| async {
        PythonExamples::prepare(target).await.unwrap_or_else(|error| panic!("{error:#}"))
    });
    let (program, args) = examples.await.command(script);
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
    /// Waits until a line begins with `beginning`, and gives the rest of it.
    pub(crate) async fn says(&mut self, beginning: &str) -> String {
        self.says_times(beginning, 1).await
    }

    /// The same, for the line that is the `times`-th of its kind.
    pub(crate) async fn says_times(&mut self, beginning: &str, times: usize) -> String {
        let what = format!("{beginning:?} for the {times}. time");
        self.until(&what, |lines| {
            lines.iter().filter_map(|line| line.strip_prefix(beginning)).nth(times - 1).map(str::to_owned)
        })
        .await
    }

    /// Waits until `text` is somewhere in what it says.
    pub(crate) async fn mentions(&mut self, text: &str) {
        self.until(text, |lines| lines.iter().any(|line| line.contains(text)).then_some(())).await;
    }

    async fn until<T>(&mut self, what: &str, found: impl Fn(&[String]) -> Option<T>) -> T {
        let seen = timeout(PATIENCE, self.lines.wait_for(|lines| found(lines).is_some())).await;
        if let Ok(Ok(lines)) = &seen
            && let Some(found) = found(lines)
        {
            return found;
        }
        drop(seen);
        panic!("it did not say {what}; it said:\n{}", self.log())
    }

    pub(crate) fn log(&self) -> String {
        self.lines.borrow().join("\n")
    }

    /// SIGTERM, and the end.
    pub(crate) async fn stop(mut self) {
        let pid = i32::try_from(self.child.id().expect("it has ended by itself")).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        let status = self.ended().await;
        assert!(status.success(), "ended with {status}; it said:\n{}", self.log());
    }

    /// SIGKILL, and the end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    /// Waits for the end, and for all that it said.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let Ok(status) = timeout(PATIENCE, self.child.wait()).await else {
            panic!("it did not end; it said:\n{}", self.log());
        };
        while self.lines.changed().await.is_ok() {}
        status.unwrap()
    }
}
