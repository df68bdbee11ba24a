//! Reads the body of a response within limits.

use std::io::Read as _;

use flate2::read::GzDecoder;
use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes};
use tokio::time::Instant;

use crate::limits::{Exceeded, LargeRead, LargeReads, MAX_READ, SMALL};

/// In bytes. More of a packed body is unpacked in parts of this size.
const PART: usize = 64 << 10;

/// A body, and the right to keep it while it is large.
#[derive(Debug, Default)]
pub(super) struct Content {
    pub(super) bytes: Bytes,
    pub(super) place: Option<LargeRead>,
}

/// Why a body is not complete.
#[derive(Debug)]
pub(super) enum BodyError {
    Exceeded(Exceeded),
    /// It did not arrive until the deadline.
    Late,
    /// A large one did not arrive in [`LARGE_TIME`].
    Slow,
    /// Others read large ones. The text is for people.
    Busy(String),
    /// It is large, and must not be.
    NotSmall,
    NotGzip,
    /// The connection has ended. The text is for the log.
    Lost(String),
}

/// Bytes that grow.
#[derive(Debug)]
struct Growing<'a> {
    large: Option<&'a LargeReads>,
    bytes: Vec<u8>,
    place: Option<LargeRead>,
    deadline: Instant,
}

impl Growing<'_> {
    /// Adds bytes, and waits for the right to do so when they become many. `deadline` moves by the time that was spent
    /// waiting for the right.
    async fn add(&mut self, more: &[u8]) -> Result<(), BodyError> {
        let length = self.bytes.len() + more.len();
        if length > MAX_READ {
            return Err(BodyError::Exceeded(Exceeded::Bytes));
        }
        if length > SMALL && self.place.is_none() {
            let large = self.large.ok_or(BodyError::NotSmall)?;
            let begin = Instant::now();
            self.place = Some(large.begin().await.map_err(BodyError::Busy)?);
            self.deadline += begin.elapsed();
        }
        self.bytes.extend_from_slice(more);
        Ok(())
    }
}

/// Reads a body, and unpacks it if `is_packed`. Without `is_kept` it is read and forgotten. A body may be large if there is
/// `large`. `place` is the right that the read has already. `deadline` moves by the time that was spent waiting for the right.
pub(super) async fn read<B>(
    mut body: B,
    (large, place): (Option<&LargeReads>, Option<LargeRead>),
    is_packed: bool,
    is_kept: bool,
    deadline: Instant,
) -> Result<Content, BodyError>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let mut found = Growing { large, bytes: Vec::new(), place, deadline };
    let mut length = 0;
    loop {
        let limit = found.place.as_ref().map(|place| place.until).filter(|until| *until < found.deadline);
        let late = if limit.is_some() { BodyError::Slow } else { BodyError::Late };
        let frame = tokio::time::timeout_at(limit.unwrap_or(found.deadline), body.frame()).await;
        let frame = frame.map_err(|_| late)?;
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| BodyError::Lost(error.to_string()))?;
        let Ok(data) = frame.into_data() else { continue };
        match is_kept {
            true => found.add(&data).await?,
            false => length += data.len(),
        }
        if length > MAX_READ {
            return Err(BodyError::Exceeded(Exceeded::Bytes));
        }
    }
    if is_packed {
        found = unpacked(found).await?;
    }
    Ok(Content { bytes: Bytes::from(found.bytes), place: found.place })
}

/// Unpacks gzip.
async fn unpacked(packed: Growing<'_>) -> Result<Growing<'_>, BodyError> {
    let Growing { large, bytes, place, deadline } = packed;
    let mut found = Growing { large, bytes: Vec::new(), place, deadline };
    let mut decoder = GzDecoder::new(bytes.as_slice());
    let mut part = vec![0; PART];
    loop {
        match decoder.read(&mut part) {
            Ok(0) => return Ok(found),
            Ok(length) => found.add(&part[..length]).await?,
            Err(_) => return Err(BodyError::NotGzip),
        }
    }
}
