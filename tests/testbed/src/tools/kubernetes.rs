//! The version of Kubernetes of test clusters.

use super::error::ToolsError;

/// The variable that names the version of Kubernetes, such as `1.37`.
const VARIABLE: &str = "PODWARD_TESTBED_KUBERNETES";

/// A Go module that pins Kubernetes with etcd, kwok and Helm; embedded, as all pins are, so that a built launcher needs no source tree.
#[derive(Debug)]
pub(super) struct KubernetesPins {
    /// The minor version, such as `1.36`.
    minor: &'static str,
    /// The file `go.mod`.
    pub(super) go_mod: &'static str,
    /// The digests of everything that `go_mod` names.
    pub(super) go_sum: &'static str,
}

/// The versions that a cluster can have. The first one is the default.
pub(super) static VERSIONS: [KubernetesPins; 2] = [
    KubernetesPins {
        minor: "1.36",
        go_mod: include_str!("../../pins/kubernetes-1.36/go.mod"),
        go_sum: include_str!("../../pins/kubernetes-1.36/go.sum"),
    },
    KubernetesPins {
        minor: "1.37",
        go_mod: include_str!("../../pins/kubernetes-1.37/go.mod"),
        go_sum: include_str!("../../pins/kubernetes-1.37/go.sum"),
    },
];

impl KubernetesPins {
    /// Returns the pins that `PODWARD_TESTBED_KUBERNETES` names, or the default: see [`Self::check`].
    pub(super) fn chosen() -> &'static Self {
        let named = std::env::var(VARIABLE).unwrap_or_default();
        Self::named(&named).unwrap_or(&VERSIONS[0])
    }

    /// Checks that `PODWARD_TESTBED_KUBERNETES` names a version that has pins, or nothing.
    ///
    /// # Errors
    /// Fails with [`ToolsError::UnknownKubernetes`] if it names another version.
    pub(super) fn check() -> Result<(), ToolsError> {
        match std::env::var(VARIABLE) {
            Ok(named) if Self::named(&named).is_none() => Err(ToolsError::UnknownKubernetes {
                named,
                known: VERSIONS.each_ref().map(|pins| pins.minor).join(", "),
            }),
            _ => Ok(()),
        }
    }

    fn named(minor: &str) -> Option<&'static Self> {
        match minor {
            "" => VERSIONS.first(),
            minor => VERSIONS.iter().find(|pins| pins.minor == minor),
        }
    }

    /// Returns the version of `module` in `go.mod`, such as `v1.36.3`, or an empty string if it is not required there.
    pub(super) fn version(&self, module: &str) -> &'static str {
        self.go_mod
            .lines()
            .map(str::split_whitespace)
            .find_map(|mut words| (words.next() == Some(module)).then(|| words.next()).flatten())
            .unwrap_or_default()
    }
}
