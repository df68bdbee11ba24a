//! Why a call failed: what the user who wrote the address of a registry may learn, and what only the log contains.
//!
//! A user who may write a binding names the address, and Podward connects to it from a network position that the user does not
//! have. So a text for the user has neither parts of an answer nor addresses that a name was resolved to.

use std::error::Error;
use std::io;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use secrecy::{ExposeSecret, SecretString};

use crate::connection::Credentials;
use crate::dialer::{DialFailure, DialProblem};
use crate::error::RegistryError;

/// The shortest time between two lines, and between two equal lines.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_OF_EQUAL: Duration = Duration::from_secs(60);
/// In characters.
const MAX_DETAIL: usize = 1_000;
/// In bytes.
const MAX_EXCERPT: usize = 200;

/// Writes what errors hide into the log of the process: not each time, because a failed call is repeated.
#[derive(Debug, Default)]
pub(crate) struct DetailLog {
    /// What no line may contain, although a server may send it back.
    secrets: Vec<SecretString>,
    last: Mutex<Option<(Instant, String)>>,
}

impl DetailLog {
    pub(crate) fn new(credentials: &Credentials) -> Self {
        Self { secrets: credentials.secrets(), last: Mutex::default() }
    }

    /// Writes a line about `error`.
    pub(crate) fn write(&self, error: &RegistryError, detail: &str) {
        let detail: String = self.redacted(detail).chars().take(MAX_DETAIL).collect();
        let RegistryError { doing, address, reason, .. } = error;
        let line = format!("{address} {reason} {detail}");
        let mut last = self.last.lock();
        let is_due = last
            .as_ref()
            .is_none_or(|(at, before)| at.elapsed() >= if *before == line { PAUSE_OF_EQUAL } else { PAUSE });
        if is_due {
            *last = Some((Instant::now(), line));
            tracing::warn!(doing, address, reason, detail, "a call of a registry failed");
        }
    }

    /// Removes credentials that a server has sent back.
    pub(crate) fn redacted(&self, text: &str) -> String {
        let without = |text: String, secret: &SecretString| text.replace(secret.expose_secret(), "***");
        self.secrets.iter().fold(text.to_owned(), without)
    }
}

/// Returns the beginning of an answer, for the log.
pub(crate) fn excerpt(body: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&body[..body.len().min(MAX_EXCERPT)]).trim())
}

/// Returns an error with its causes, for the log.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let texts: Vec<String> = causes(error).map(ToString::to_string).collect();
    texts.join(": ")
}

/// Returns why there is no connection, for the user.
pub(crate) fn connect_problem(error: &(dyn Error + 'static)) -> String {
    format!("could not connect: {}; the log of the bridge has the details", classified(error))
}

fn classified(error: &(dyn Error + 'static)) -> &'static str {
    for cause in causes(error) {
        if let Some(failure) = cause.downcast_ref::<DialFailure>() {
            return match failure.problem {
                DialProblem::NotAllowed => {
                    "connections to this host are not allowed; an administrator can allow networks with \
                     global.allowedAddresses of the chart"
                }
                DialProblem::NotResolved => "the name of the host could not be resolved",
                DialProblem::NotReady => "Podward does not know yet which addresses are not allowed",
            };
        }
        if let Some(error) = cause.downcast_ref::<rustls::Error>() {
            return match error {
                rustls::Error::InvalidCertificate(_) => {
                    "the certificate of the server is not accepted; check it, and the certificate authorities of the \
                     connection"
                }
                rustls::Error::AlertReceived(_) => {
                    "the server has refused the TLS handshake; check the certificate of the client"
                }
                _ => "the TLS handshake failed; check that the port is one of TLS",
            };
        }
        let kind = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        match kind {
            Some(io::ErrorKind::ConnectionRefused) => return "connection refused",
            Some(io::ErrorKind::TimedOut) => return "no answer in time",
            Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                return "there is no route to the host";
            }
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
                return "the server closed the connection";
            }
            _ => {}
        }
    }
    "no connection could be opened"
}

/// Returns an error and its causes, also those inside of errors of I/O.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| cause(*error))
}

fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_written() {
        let password = Credentials::Password { user: "ada".to_owned(), password: "sesame".to_owned().into() };
        for credentials in [password, Credentials::Token("sesame".to_owned().into())] {
            let is_token = matches!(credentials, Credentials::Token(_));
            let text = DetailLog::new(&credentials).redacted("you sent sesame and YWRhOnNlc2FtZQ==");
            assert!(!text.contains("sesame"), "{text}");
            // A token is sent as it is.
            assert!(is_token || !text.contains("YWRhOnNlc2FtZQ"), "{text}");
        }
        let empty = Credentials::Token(String::new().into());
        assert_eq!(DetailLog::new(&empty).redacted("ab"), "ab");
    }

    #[test]
    fn a_connection_that_is_not_allowed_is_said_to_be_so() {
        let problem = |problem| {
            let source = "10.20.30.40 is a loopback address".into();
            let error = io::Error::other(DialFailure { problem, source });
            assert!(chain(&error).contains("10.20.30.40"));
            connect_problem(&io::Error::other(error))
        };
        for (one, text) in [
            (DialProblem::NotAllowed, "not allowed"),
            (DialProblem::NotResolved, "could not be resolved"),
            (DialProblem::NotReady, "does not know yet"),
        ] {
            let shown = problem(one);
            assert!(shown.contains(text) && !shown.contains("10.20"), "{shown}");
        }
    }
}
