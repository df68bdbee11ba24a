//! How the server is started.

use std::{env, fs, str::FromStr};

/// What SIGTERM does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// Requests in flight are finished, and each connection is closed after the answer that it waits for.
    Graceful,
    /// The process ends at once, as it does when a program has no handler of its own and isn't process 1.
    Immediate,
}

impl FromStr for Shutdown {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "graceful" => Ok(Self::Graceful),
            "immediate" => Ok(Self::Immediate),
            _ => Err(format!("{text:?} is no way to shut down: use graceful or immediate")),
        }
    }
}

/// How the server was started.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) listen: String,
    pub(crate) version: String,
    pub(crate) pod: String,
    pub(crate) shutdown: Shutdown,
}

impl Settings {
    /// Reads the environment and then `args`. The error says which argument or variable is wrong.
    pub(crate) fn from_args(mut args: impl Iterator<Item = String>) -> Result<Self, String> {
        let variable = |name: &str, otherwise: &str| env::var(name).unwrap_or_else(|_| otherwise.to_owned());
        let mut listen = variable("LISTEN", "0.0.0.0:8080");
        let mut version = variable("VERSION", "unknown");
        let mut shutdown = variable("SHUTDOWN", "graceful");
        while let Some(arg) = args.next() {
            let target = match arg.as_str() {
                "--listen" => &mut listen,
                "--version-text" => &mut version,
                "--shutdown" => &mut shutdown,
                _ => {
                    return Err(format!(
                        "unknown argument {arg}: use --listen ADDR:PORT, --version-text TEXT or --shutdown MODE"
                    ));
                }
            };
            *target = args.next().ok_or_else(|| format!("{arg} needs a value"))?;
        }
        let pod = env::var("POD_NAME").unwrap_or_else(|_| host_name());
        Ok(Self { listen, version, pod, shutdown: shutdown.parse()? })
    }
}

fn host_name() -> String {
    fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "unknown".to_owned(), |name| name.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(args: &[&str]) -> Result<Settings, String> {
        Settings::from_args(args.iter().map(|arg| (*arg).to_owned()))
    }

    #[test]
    fn arguments_win_and_strange_ones_are_refused() {
        let settings = from(&["--listen", "127.0.0.1:1", "--version-text", "v9", "--shutdown", "immediate"]);
        let settings = settings.unwrap();
        assert_eq!((settings.listen.as_str(), settings.version.as_str()), ("127.0.0.1:1", "v9"));
        assert_eq!(settings.shutdown, Shutdown::Immediate);
        assert_eq!(from(&[]).unwrap().shutdown, Shutdown::Graceful);
        assert!(from(&["--what"]).is_err());
        assert!(from(&["--listen"]).is_err());
        assert!(from(&["--shutdown", "slowly"]).is_err());
    }
}
