//! The settings of the server.

use std::{env, fs, str::FromStr};

/// The behaviour on SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// Finishes requests in flight and closes each connection after its response.
    Graceful,
    /// Ends at once, like a program without a handler that is not process 1.
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

/// The settings of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ServerSettings {
    pub(crate) listen: String,
    pub(crate) version: String,
    pub(crate) pod: String,
    pub(crate) shutdown: Shutdown,
}

impl ServerSettings {
    /// Reads the environment, then `args`. The error names the invalid argument or variable.
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

    fn from(args: &[&str]) -> Result<ServerSettings, String> {
        ServerSettings::from_args(args.iter().map(|arg| (*arg).to_owned()))
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
