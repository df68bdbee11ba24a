//! The packets of a connection, each after its length.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::limits::MAX_READ;

/// The number of bytes that are read at once.
const CHUNK: usize = 64 << 10;
/// In bytes: what is kept of a packet that is too long. It says which request it answers, and whether it is an error.
const HEADER: usize = 16;

/// A packet, without its length.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) bytes: Vec<u8>,
    /// True if only the beginning was kept.
    pub(super) is_cut: bool,
}

/// Packets as they arrive.
pub(super) struct Frames<R> {
    reader: R,
    packets: Packets,
}

impl<R: AsyncRead + Unpin> Frames<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, packets: Packets::default() }
    }

    /// Returns the next packet. Of one with more than `max` bytes only the beginning is kept. Dropping the future loses
    /// nothing.
    pub(super) async fn next(&mut self, max: usize) -> io::Result<Frame> {
        loop {
            if let Some(frame) = self.packets.take(max)? {
                return Ok(frame);
            }
            self.packets.buffer.reserve(CHUNK);
            if self.reader.read_buf(&mut self.packets.buffer).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed it"));
            }
        }
    }
}

/// What has arrived.
#[derive(Debug, Default)]
struct Packets {
    buffer: Vec<u8>,
    /// The beginning of a packet that is too long, and the number of bytes of it that are still to be dropped.
    cut: Option<(Vec<u8>, usize)>,
}

impl Packets {
    /// Takes the first packet out of the buffer, if it is complete.
    fn take(&mut self, max: usize) -> io::Result<Option<Frame>> {
        if let Some((_, rest)) = &mut self.cut {
            let dropped = self.buffer.len().min(*rest);
            self.buffer.drain(..dropped);
            *rest -= dropped;
            if *rest > 0 {
                return Ok(None);
            }
            return Ok(self.cut.take().map(|(bytes, _)| Frame { bytes, is_cut: true }));
        }
        let Some((length, rest)) = self.buffer.split_first_chunk() else { return Ok(None) };
        let length = usize::try_from(i32::from_be_bytes(*length)).ok();
        let length = length.ok_or_else(|| io::Error::other("the length of a packet is invalid"))?;
        if length > max.min(MAX_READ) {
            let Some(header) = rest.get(..HEADER).map(<[u8]>::to_vec) else { return Ok(None) };
            self.buffer.drain(..HEADER + 4);
            self.cut = Some((header, length - HEADER));
            return self.take(max);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let rest = self.buffer.split_off(length + 4);
        let mut bytes = std::mem::replace(&mut self.buffer, rest);
        bytes.drain(..4);
        Ok(Some(Frame { bytes, is_cut: false }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> Option<Frame> {
        Some(Frame { bytes: bytes.to_vec(), is_cut: false })
    }

    #[test]
    fn packets_are_taken_when_they_are_complete() {
        let mut packets = Packets { buffer: vec![0, 0, 0, 2, 7], cut: None };
        assert_eq!(packets.take(100).unwrap(), None);
        packets.buffer.extend([8, 0, 0, 0, 0, 0]);
        assert_eq!(packets.take(100).unwrap(), whole(&[7, 8]));
        assert_eq!(packets.take(100).unwrap(), whole(&[]));
        assert_eq!((packets.take(100).unwrap(), packets.buffer), (None, vec![0]));
    }

    #[test]
    fn of_a_packet_that_is_too_long_the_beginning_is_kept() {
        let mut packets = Packets::default();
        packets.buffer.extend(101_i32.to_be_bytes());
        packets.buffer.extend([1; 15]);
        assert_eq!(packets.take(100).unwrap(), None);
        packets.buffer.extend([1; 50]);
        assert_eq!(packets.take(100).unwrap(), None);
        assert!(packets.buffer.is_empty());
        packets.buffer.extend([1; 36]);
        packets.buffer.extend([0, 0, 0, 1, 9]);
        assert_eq!(packets.take(100).unwrap(), Some(Frame { bytes: vec![1; HEADER], is_cut: true }));
        assert_eq!(packets.take(100).unwrap(), whole(&[9]));
    }

    #[test]
    fn the_length_of_a_packet_is_limited() {
        for length in [i32::MIN, -1] {
            let mut packets = Packets { buffer: length.to_be_bytes().to_vec(), cut: None };
            assert!(packets.take(100).is_err(), "{length}");
        }
        let mut packets = Packets { buffer: i32::MAX.to_be_bytes().to_vec(), cut: None };
        packets.buffer.extend([0; 100]);
        assert_eq!(packets.take(usize::MAX).unwrap(), None);
        assert!(packets.buffer.is_empty() && packets.cut.is_some());
    }
}
