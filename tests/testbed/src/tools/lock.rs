//! Lets one process build at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, Write};
use std::path::Path;
use std::time::Duration;

use super::error::ToolsError;
use super::progress::Progress;

/// The interval at which a waiting process tries again.
const POLL: Duration = Duration::from_millis(200);

/// The lock. The kernel releases it when the process ends.
#[derive(Debug)]
pub(super) struct FileLock {
    _file: File,
}

/// Takes the lock at `path` and waits while another process holds it. The file contains the holder, for users.
pub(super) async fn acquire(path: &Path, progress: &Progress) -> Result<FileLock, ToolsError> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(|e| ToolsError::io("open the lock file", path, e))?;
    let mut waiting = None;
    loop {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) => {
                if waiting.is_none() {
                    waiting = Some(
                        progress.step(&format!("wait for {}, which builds already", holder(&mut file)), None),
                    );
                }
                tokio::time::sleep(POLL).await;
            }
            Err(TryLockError::Error(e)) => return Err(ToolsError::io("lock", path, e)),
        }
    }
    if let Some(step) = waiting {
        step.done();
    }
    let command = std::env::args().collect::<Vec<_>>().join(" ");
    let text = format!("process {} ({command})", std::process::id());
    file.set_len(0)
        .and_then(|()| file.rewind())
        .and_then(|()| file.write_all(text.as_bytes()))
        .map_err(|e| ToolsError::io("write the lock file", path, e))?;
    Ok(FileLock { _file: file })
}

fn holder(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
    if read.is_ok() && !text.is_empty() { text } else { "another process".to_owned() }
}
