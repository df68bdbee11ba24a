//! The UID of a pod, and the control groups of its processes.

use std::fmt;

/// The length of a UID that the API server assigned.
const UUID_LENGTH: usize = 36;
/// How the group of a monitor of CRI-O begins. It is a group below that of the pod, but the process is one of the node.
const MONITOR: &str = "crio-conmon-";
/// The maximum length of a UID. The UID of a static pod is a hash.
const MAX_LENGTH: usize = 64;

/// The UID of a pod.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PodUid(String);

/// A text that is not a UID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not the UID of a pod: it must have 32 to {MAX_LENGTH} hexadecimal digits or hyphens, as in \
     metadata.uid"
)]
pub(crate) struct InvalidPodUid {
    text: String,
}

impl PodUid {
    /// Reads a UID.
    ///
    /// # Errors
    /// Fails if `text` contains anything but hexadecimal digits and hyphens, or is too short or too long. A short text
    /// could be a part of the UID of another pod.
    pub(crate) fn parse(text: &str) -> Result<Self, InvalidPodUid> {
        let is_uid = (UUID_LENGTH - 4..=MAX_LENGTH).contains(&text.len())
            && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
        if is_uid {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidPodUid { text: text.chars().take(80).collect() })
        }
    }

    /// Returns whether `cgroups`, the text of `/proc/<pid>/cgroup`, is that of a process of this pod. The kubelet names
    /// the group of a pod `pod<uid>`, with the driver systemd `kubepods-...-pod<uid>.slice` with underscores instead of
    /// hyphens. With `cgroupRoot`, as in kind, the slice begins with the name of the root. A process of the container
    /// runtime that has its group there does not count.
    pub(crate) fn is_of(&self, cgroups: &str) -> bool {
        let escaped = self.0.replace('-', "_");
        let is_pod = |part: &str| {
            part.strip_prefix("pod").is_some_and(|uid| uid == self.0)
                || part.strip_suffix(".slice").and_then(|slice| slice.rsplit_once("-pod")).is_some_and(
                    |(parent, uid)| parent.split('-').any(|part| part == "kubepods") && uid == escaped,
                )
        };
        cgroups
            .lines()
            .filter_map(|line| line.splitn(3, ':').nth(2))
            .any(|path| path.split('/').any(is_pod) && !path.split('/').any(|part| part.starts_with(MONITOR)))
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UID: &str = "0a1b2c3d-0000-4000-8000-0123456789ab";

    #[test]
    fn groups_of_all_drivers_and_versions_are_recognised() {
        let uid = PodUid::parse(UID).unwrap();
        let escaped = UID.replace('-', "_");
        for path in [
            format!("0::/kubepods/burstable/pod{UID}/container"),
            format!("12:cpu,cpuacct:/podward-testbed/kubepods/pod{UID}"),
            format!(
                "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{escaped}.slice/cri-x.scope"
            ),
            format!("0::/kubepods.slice/kubepods-pod{escaped}.slice"),
            format!("1:name=systemd:/\n0::/../../kubepods/pod{UID}/x"),
        ] {
            assert!(uid.is_of(&path), "{path}");
        }
        for path in [
            String::new(),
            "0::/".to_owned(),
            format!("0::/kubepods/pod{UID}0/x"),
            format!("0::/kubepods/xpod{UID}"),
            format!("0::/user.slice/evil-pod{escaped}.slice"),
            format!("0:pod{UID}:/"),
            format!("0::/kubepods/pod{UID}/crio-conmon-0123"),
            format!("0::/kubepods.slice/kubepods-pod{escaped}.slice/crio-conmon-0123.scope"),
            "0::/kubepods/pod0a1b2c3d-0000-4000-8000-0123456789ac".to_owned(),
        ] {
            assert!(!uid.is_of(&path), "{path}");
        }
    }

    proptest! {
        /// A group belongs to a pod only if it contains the whole UID.
        #[test]
        fn no_other_group_is_that_of_the_pod(cgroups in "[0-9]{1,2}:[a-z,]*:(/[a-z0-9._-]{0,60}){0,5}\n?") {
            prop_assert!(!PodUid::parse(UID).unwrap().is_of(&cgroups));
        }

        #[test]
        fn a_text_that_is_a_uid_names_no_folder(text in any::<String>()) {
            prop_assert!(PodUid::parse(&text).is_err() || !text.contains(['/', '.', '\n', ':']));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in ["", "..", "pod", "0a1b2c3d", "0a1b2c3d-0000-4000-8000-0123456789a/", &"a".repeat(65)] {
            assert!(PodUid::parse(text).is_err(), "{text:?}");
        }
        assert!(PodUid::parse(&"0123456789abcdef".repeat(2)).is_ok(), "a static pod");
    }

    /// The kubelet of kind has `cgroupRoot: /kubelet`, so that each slice begins with its name.
    #[test]
    fn groups_below_a_cgroup_root_are_recognised() {
        let uid = PodUid::parse(UID).unwrap();
        let escaped = UID.replace('-', "_");
        let path = format!(
            "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{escaped}.slice/cri-containerd-x.scope"
        );
        assert!(uid.is_of(&path), "{path}");
    }
}
