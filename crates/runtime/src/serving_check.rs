//! The readiness condition that the TLS port of the process serves.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::admin::ReadinessCondition;
use crate::tls::{ServingCertificate, self_check};

const SELF_CHECK_INTERVAL: Duration = Duration::from_secs(10);
const SELF_CHECK_RETRY_DELAY: Duration = Duration::from_millis(200);
const SELF_CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// A replica under full load may miss a check. One that misses this many in a row does not serve.
const SELF_CHECK_FAILURES: u32 = 3;

/// Keeps `serves` true while the port at `address` serves `certificate`, until `end`.
pub(crate) async fn check_repeatedly(
    address: SocketAddr,
    certificate: Arc<ServingCertificate>,
    serves: ReadinessCondition,
    end: CancellationToken,
) {
    let mut failures = 0;
    loop {
        let checked = tokio::select! {
            () = end.cancelled() => return,
            checked = self_check(address, &certificate, SELF_CHECK_TIMEOUT) => checked,
        };
        let pause = match checked {
            Ok(()) => {
                failures = 0;
                if serves.set(true) {
                    tracing::info!("the TLS port serves");
                }
                SELF_CHECK_INTERVAL
            }
            Err(error) => {
                failures += 1;
                if failures >= SELF_CHECK_FAILURES && serves.set(false) {
                    tracing::error!("not ready: {error}");
                }
                SELF_CHECK_RETRY_DELAY
            }
        };
        tokio::select! {
            () = end.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
