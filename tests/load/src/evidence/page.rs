//! The pages of a kube-proxy that never writes its rules.

use hyper::body::Bytes;

/// A page of kube-proxy 1.36: its metrics that are read.
const RECORDED: &str =
    include_str!("../../../../crates/traffic-controller/src/proxy/tests/kube-proxy-1.36.txt");
/// The size of the whole page of kube-proxy 1.36 in bytes, on a real node of a test cluster. It has 1,267 lines.
const SIZE: usize = 115_680;
/// The size of a chunk in which Go's HTTP server sends a page.
const CHUNK: usize = 2048;
/// The settings, as in `/configz`.
pub(super) const SETTINGS: &str =
    r#"{"kubeproxy.config.k8s.io":{"mode":"iptables","iptables":{"syncPeriod":"30s","minSyncPeriod":"1s"}}}"#;

/// Returns the metrics after `failed` syncs that failed, in the chunks in which they are sent. Changes are pending.
pub(super) fn chunks(failed: u64) -> Vec<Bytes> {
    let text = Bytes::from(text(failed));
    (0..text.len()).step_by(CHUNK).map(|start| text.slice(start..text.len().min(start + CHUNK))).collect()
}

fn text(failed: u64) -> String {
    let mut text = String::with_capacity(SIZE);
    // The lines that are not read. The real ones are as long on average.
    for number in 0.. {
        if text.len() + RECORDED.len() >= SIZE {
            break;
        }
        text += &match number % 3 {
            0 => format!(
                "# HELP simulated_{number}_duration_seconds [ALPHA] Duration in seconds of a step of kube-proxy that is not read, in seconds\n"
            ),
            1 => format!("# TYPE simulated_{number}_duration_seconds histogram\n"),
            _ => format!(
                "simulated_duration_seconds_bucket{{host=\"10.96.0.1:443\",verb=\"GET\",le=\"{number}\"}} {}\n",
                number * 7
            ),
        };
    }
    for line in RECORDED.lines() {
        text += &match line.split_once(' ') {
            Some((name, "0")) if name.ends_with("_changes_pending") => format!("{name} 5\n"),
            // One sync succeeded. The others count in the histogram too.
            Some((name, "1")) if name.contains("sync_proxy_rules_duration_seconds") => {
                format!("{name} {}\n", failed + 1)
            }
            _ => format!("{line}\n"),
        };
    }
    for family in ["IPv4", "IPv6"] {
        text += &format!(
            "kubeproxy_sync_proxy_rules_iptables_restore_failures_total{{ip_family=\"{family}\"}} {failed}\n"
        );
    }
    text
}
