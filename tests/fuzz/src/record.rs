//! The file with the input that is being handled. It is what remains if an input ends the process: a stack that is
//! too deep and memory that cannot be allocated cause no panic.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::input::Input;

/// The size of the length in front of an input, in bytes.
const HEAD: usize = 8;

/// The file. It never shrinks, because that is slower than the handling of an input; its first bytes are the length.
#[derive(Debug)]
pub(crate) struct InputRecord {
    file: File,
    buffer: Vec<u8>,
}

impl InputRecord {
    /// Creates the file, without an input.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
        Ok(Self { file, buffer: Vec::new() })
    }

    /// Replaces the input.
    pub(crate) fn write(&mut self, input: &Input) -> io::Result<()> {
        self.buffer.clear();
        let length = u64::try_from(input.body.len() + 1).unwrap_or_default();
        self.buffer.extend_from_slice(&length.to_le_bytes());
        self.buffer.push(input.variant);
        self.buffer.extend_from_slice(&input.body);
        self.file.write_all_at(&self.buffer, 0)
    }

    /// Reads the input of a file; `None` if it has none.
    pub(crate) fn read(path: &Path) -> io::Result<Option<Input>> {
        let mut content = Vec::new();
        File::open(path)?.read_to_end(&mut content)?;
        let Some((head, rest)) = content.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = usize::try_from(u64::from_le_bytes(*head)).unwrap_or(usize::MAX);
        Ok(rest.get(..length).map(Input::from_file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_input_replaces_a_longer_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("input");
        let mut record = InputRecord::create(&path).unwrap();
        assert_eq!(InputRecord::read(&path).unwrap(), None);
        for input in [Input::new(3, b"a long body".as_slice()), Input::new(0, b"b".as_slice())] {
            record.write(&input).unwrap();
            assert_eq!(InputRecord::read(&path).unwrap(), Some(input));
        }
    }
}
