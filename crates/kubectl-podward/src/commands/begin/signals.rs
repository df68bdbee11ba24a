//! The signals that end a command line, and what they mean for an operation that it has announced.

use std::future::{Future, pending};

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A signal that asks the process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interruption {
    /// SIGINT: Ctrl-C. A terminal sends it to the command, too.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGHUP: the terminal is gone.
    Hangup,
}

impl Interruption {
    /// Returns the exit code with which shells report the signal.
    pub(super) fn exit_code(self) -> u8 {
        let number = self.kind().as_raw_value();
        128 + u8::try_from(number).unwrap_or_default()
    }

    /// Returns the signal, to send it.
    ///
    /// # Errors
    /// When the system does not have it.
    pub(super) fn signal(self) -> Result<nix::sys::signal::Signal> {
        Ok(self.kind().as_raw_value().try_into()?)
    }

    fn kind(self) -> SignalKind {
        match self {
            Self::Interrupt => SignalKind::interrupt(),
            Self::Terminate => SignalKind::terminate(),
            Self::Hangup => SignalKind::hangup(),
        }
    }
}

/// Where interruptions come from.
pub(super) trait Interruptions {
    /// Waits for the next one.
    fn next(&mut self) -> impl Future<Output = Interruption>;
}

/// The signals of this process. They do not end it any more.
pub(super) struct Signals {
    interrupt: Option<Signal>,
    terminate: Option<Signal>,
    hangup: Option<Signal>,
}

impl Signals {
    /// Listens from now on. A signal that is ignored, as SIGHUP is after `nohup`, stays ignored.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub(super) fn listen() -> Result<Self> {
        // Other systems than Linux have no such file.
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let listen = |interruption: Interruption| -> Result<Option<Signal>> {
            let kind = interruption.kind();
            if is_ignored(&status, kind) {
                return Ok(None);
            }
            signal(kind).map(Some).with_context(|| format!("listen for the signal {interruption:?}"))
        };
        Ok(Self {
            interrupt: listen(Interruption::Interrupt)?,
            terminate: listen(Interruption::Terminate)?,
            hangup: listen(Interruption::Hangup)?,
        })
    }
}

impl Interruptions for Signals {
    async fn next(&mut self) -> Interruption {
        tokio::select! {
            () = received(&mut self.interrupt) => Interruption::Interrupt,
            () = received(&mut self.terminate) => Interruption::Terminate,
            () = received(&mut self.hangup) => Interruption::Hangup,
        }
    }
}

/// Interruptions that come at once, the last one first.
#[cfg(test)]
pub(super) struct PlannedInterruptions(pub(super) Vec<Interruption>);

#[cfg(test)]
impl Interruptions for PlannedInterruptions {
    async fn next(&mut self) -> Interruption {
        match self.0.pop() {
            Some(next) => next,
            None => pending().await,
        }
    }
}

/// Waits for a signal; for ever if it is ignored.
async fn received(signal: &mut Option<Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    pending().await
}

/// Returns whether the process ignores the signal, by the content of `/proc/self/status`.
fn is_ignored(status: &str, kind: SignalKind) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default();
    let bit = u32::try_from(kind.as_raw_value() - 1).ok().and_then(|bit| 1_u64.checked_shl(bit));
    bit.is_some_and(|bit| mask & bit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_exit_codes_are_those_of_shells() {
        let all = [Interruption::Interrupt, Interruption::Terminate, Interruption::Hangup];
        assert_eq!(all.map(Interruption::exit_code), [130, 143, 129]);
        let signals = all.map(|interruption| interruption.signal().unwrap().as_str());
        assert_eq!(signals, ["SIGINT", "SIGTERM", "SIGHUP"]);
    }

    #[test]
    fn a_signal_that_nohup_ignores_stays_ignored() {
        let status =
            "Name:\tx\nSigBlk:\t0000000000000003\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000440\n";
        assert!(is_ignored(status, SignalKind::hangup()));
        assert!(!is_ignored(status, SignalKind::interrupt()) && !is_ignored(status, SignalKind::terminate()));
        assert!(!is_ignored("", SignalKind::hangup()));
    }
}
