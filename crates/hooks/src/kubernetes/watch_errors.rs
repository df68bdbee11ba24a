//! The log of errors of a watch.

use kube::runtime::watcher;

/// Logs the first error of a watch as a warning, and no other one before the watch has worked again.
pub(crate) struct WatchErrorLog {
    of: &'static str,
    reported: bool,
}

impl WatchErrorLog {
    pub(crate) fn new(of: &'static str) -> Self {
        WatchErrorLog { of, reported: false }
    }

    pub(crate) fn note<T>(&mut self, event: watcher::Result<watcher::Event<T>>) -> Option<watcher::Event<T>> {
        match event {
            Ok(event) => {
                // The start of a list is not yet a success.
                self.reported &= matches!(event, watcher::Event::Init);
                Some(event)
            }
            Err(error) if self.reported => {
                tracing::debug!(%error, of = self.of, "watch");
                None
            }
            Err(error) if is_missing(&error) => {
                self.reported = true;
                tracing::warn!(
                    of = self.of,
                    "the resource is not installed: no hooks are known, and no pod is released before they are. \
                     Install the CustomResourceDefinitions of Podward; Podward retries with back-off"
                );
                None
            }
            Err(error) => {
                self.reported = true;
                tracing::warn!(%error, of = self.of, "the watch failed; Podward retries with back-off");
                None
            }
        }
    }
}

fn is_missing(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}
