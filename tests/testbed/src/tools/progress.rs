//! Says what is being done, for how long, and how long it will take.

mod estimate;

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(super) use estimate::Planned;
use estimate::{Plan, words};

/// How often the line on a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(200);
/// How often a step says that it still runs where lines can't be redrawn.
const REPEAT: Duration = Duration::from_secs(15);
/// How much of a step's latest output is shown.
const DETAIL: usize = 60;

/// Where the progress of long work is shown; cheap to clone.
///
/// On a terminal it is one line that is redrawn; elsewhere a line when a step begins, one every 15 seconds and one
/// when it ends.
#[derive(Debug, Clone)]
pub struct Progress {
    shared: Arc<Mutex<Shared>>,
    mode: Mode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Quiet,
    Lines,
    Redrawn,
}

#[derive(Debug, Default)]
struct Shared {
    plan: Plan,
    detail: String,
}

impl Progress {
    /// Shows progress on the standard error.
    pub fn stderr() -> Self {
        let terminal =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        Self::in_mode(if terminal { Mode::Redrawn } else { Mode::Lines })
    }

    /// Shows nothing.
    pub fn quiet() -> Self {
        Self::in_mode(Mode::Quiet)
    }

    fn in_mode(mode: Mode) -> Self {
        Self { shared: Arc::default(), mode }
    }

    /// Announces the steps to come, so that what is left can be told. Replaces an earlier announcement.
    pub(super) fn plan(&self, steps: Vec<Planned>) {
        self.lock().plan = Plan::new(steps);
    }

    /// Begins a step; `expected` is how long it should take, if that is known. The step ends with [`Step::done`];
    /// dropping it without that says that it failed.
    pub fn step(&self, name: &str, expected: Option<Duration>) -> Step {
        let mut shared = self.lock();
        shared.detail.clear();
        shared.plan.begin(name, expected);
        drop(shared);
        let started = Instant::now();
        if self.mode == Mode::Lines {
            self.print(&self.lock().plan.line(Duration::ZERO));
        }
        let (stop, stopped) = channel::<()>();
        let (progress, mode) = (self.clone(), self.mode);
        let ticker = (mode != Mode::Quiet).then(|| {
            std::thread::spawn(move || {
                let period = if mode == Mode::Redrawn { REDRAW } else { REPEAT };
                while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                    progress.tick(started.elapsed());
                }
            })
        });
        Step { progress: self.clone(), name: name.to_owned(), started, stop: Some(stop), ticker, done: false }
    }

    /// Says something besides the steps.
    pub fn note(&self, text: &str) {
        if self.mode != Mode::Quiet {
            self.print(text);
        }
    }

    fn tick(&self, elapsed: Duration) {
        let shared = self.lock();
        let mut line = shared.plan.line(elapsed);
        if !shared.detail.is_empty() {
            line = format!("{line}: {}", shared.detail);
        }
        drop(shared);
        match self.mode {
            Mode::Quiet => {}
            Mode::Lines => self.print(&line),
            // Wrapping is off while the line is drawn: a line longer than the terminal would leave its rests behind.
            Mode::Redrawn => Self::write(&format!("\r\x1b[2K\x1b[?7l{line}\x1b[?7h")),
        }
    }

    fn print(&self, line: &str) {
        let clear = if self.mode == Mode::Redrawn { "\r\x1b[2K" } else { "" };
        Self::write(&format!("{clear}{line}\n"));
    }

    /// A closed standard error must not end a build.
    fn write(text: &str) {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A step that runs; see [`Progress::step`].
#[derive(Debug)]
pub struct Step {
    progress: Progress,
    name: String,
    started: Instant,
    stop: Option<Sender<()>>,
    ticker: Option<JoinHandle<()>>,
    done: bool,
}

impl Step {
    /// Shows `text` beside the step, until the next one.
    pub fn detail(&self, text: &str) {
        self.progress.lock().detail = text.trim().chars().filter(|c| !c.is_control()).take(DETAIL).collect();
    }

    /// The step ended well.
    pub fn done(mut self) {
        self.done = true;
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(ticker) = self.ticker.take() {
            let _ = ticker.join();
        }
        let elapsed = self.started.elapsed();
        let prefix = {
            let mut shared = self.progress.lock();
            let prefix = shared.plan.prefix();
            shared.plan.end(elapsed);
            prefix
        };
        let word = if self.done { "done in" } else { "FAILED after" };
        self.progress.note(&format!("{prefix}{}: {word} {}", self.name, words(elapsed)));
    }
}
