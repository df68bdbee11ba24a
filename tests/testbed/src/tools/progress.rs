//! Shows the current step, its duration, and the estimated remaining time.

mod estimate;

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub(super) use estimate::Planned;
use estimate::{BuildPlan, words};

/// The interval at which the line on a terminal is redrawn.
const REDRAW: Duration = Duration::from_millis(200);
/// The interval at which a running step is reported where lines cannot be redrawn.
const REPEAT: Duration = Duration::from_secs(15);
/// The number of characters of a step's latest output that are shown.
const DETAIL: usize = 60;

/// Shows the progress of long work. It is cheap to clone.
///
/// On a terminal it redraws one line. Elsewhere it prints a line when a step begins, every 15 seconds, and when it
/// ends.
#[derive(Debug, Clone)]
pub struct Progress {
    shared: Arc<Mutex<ProgressState>>,
    mode: ProgressMode,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProgressMode {
    Quiet,
    Lines,
    Redrawn,
}

#[derive(Debug, Default)]
struct ProgressState {
    plan: BuildPlan,
    detail: String,
}

impl Progress {
    /// Shows progress on the standard error.
    pub fn stderr() -> Self {
        let terminal =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        Self::in_mode(if terminal { ProgressMode::Redrawn } else { ProgressMode::Lines })
    }

    /// Shows nothing.
    pub fn quiet() -> Self {
        Self::in_mode(ProgressMode::Quiet)
    }

    fn in_mode(mode: ProgressMode) -> Self {
        Self { shared: Arc::default(), mode }
    }

    /// Announces the next steps, so that the remaining time can be estimated. Replaces an earlier announcement.
    pub(super) fn plan(&self, steps: Vec<Planned>) {
        self.lock().plan = BuildPlan::new(steps);
    }

    /// Begins a step. `expected` is its expected duration, if known. The step ends with [`Step::done`]. Dropping it
    /// reports a failure.
    pub fn step(&self, name: &str, expected: Option<Duration>) -> Step {
        let mut shared = self.lock();
        shared.detail.clear();
        shared.plan.begin(name, expected);
        drop(shared);
        let started = Instant::now();
        if self.mode == ProgressMode::Lines {
            self.print(&self.lock().plan.line(Duration::ZERO));
        }
        let (stop, stopped) = channel::<()>();
        let (progress, mode) = (self.clone(), self.mode);
        let ticker = (mode != ProgressMode::Quiet).then(|| {
            std::thread::spawn(move || {
                let period = if mode == ProgressMode::Redrawn { REDRAW } else { REPEAT };
                while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                    progress.tick(started.elapsed());
                }
            })
        });
        Step { progress: self.clone(), name: name.to_owned(), started, stop: Some(stop), ticker, done: false }
    }

    /// Prints a message.
    pub fn note(&self, text: &str) {
        if self.mode != ProgressMode::Quiet {
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
            ProgressMode::Quiet => {}
            ProgressMode::Lines => self.print(&line),
            // Line wrapping is off while the line is drawn. Otherwise, parts of a line that is longer than the
            // terminal stay.
            ProgressMode::Redrawn => Self::write(&format!("\r\x1b[2K\x1b[?7l{line}\x1b[?7h")),
        }
    }

    fn print(&self, line: &str) {
        let clear = if self.mode == ProgressMode::Redrawn { "\r\x1b[2K" } else { "" };
        Self::write(&format!("{clear}{line}\n"));
    }

    /// A closed standard error must not end a build.
    fn write(text: &str) {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    fn lock(&self) -> MutexGuard<'_, ProgressState> {
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
    /// Shows `text` beside the step, until the next call.
    pub fn detail(&self, text: &str) {
        self.progress.lock().detail = text.trim().chars().filter(|c| !c.is_control()).take(DETAIL).collect();
    }

    /// Ends the step with success.
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
