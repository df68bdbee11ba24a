//! The archive of the plugin: the program and its licence. The same program gives the same bytes.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use podward_images::TarWriter;
use sha2::{Digest, Sha256};

/// The name of the program. kubectl finds it by this name.
pub(super) const PROGRAM: &str = "kubectl-podward";
/// The name of the licence.
pub(super) const LICENCE: &str = "LICENSE";
/// The architectures that the plugin is packed for.
pub(super) const ARCHITECTURES: [&str; 2] = ["amd64", "arm64"];

/// Returns the name of this version's archive for `architecture`.
pub(super) fn file_name(architecture: &str) -> String {
    format!("{PROGRAM}-{}-linux-{architecture}.tar.gz", env!("CARGO_PKG_VERSION"))
}

/// Returns the archive. The encoder writes no time and no name into its header.
pub(super) fn pack(program: &[u8], licence: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut tar = TarWriter::default();
    tar.file(PROGRAM, program, 0o755)?;
    tar.file(LICENCE, licence, 0o644)?;
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&tar.finish()?)?;
    encoder.finish()
}

/// Returns the SHA-256 of `content` in hexadecimal digits.
pub(super) fn sha256(content: &[u8]) -> String {
    format!("{:x}", Sha256::digest(content))
}

/// Returns the line by which `sha256sum --check` checks the file `name`.
pub(super) fn checksum_line(content: &[u8], name: &str) -> String {
    format!("{}  {name}\n", sha256(content))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;

    use super::*;

    /// Two calls within a second would have the same time in their headers, so the headers are compared with fixed values.
    #[test]
    fn the_archive_has_program_and_licence_without_time_and_owner() {
        let packed = pack(b"\x7fELF", b"Apache").expect("an archive");
        let gzip = GzDecoder::new(packed.as_slice());
        let header = gzip.header().expect("a header");
        assert_eq!((header.mtime(), header.filename()), (0, None));

        let mut members = Vec::new();
        for entry in tar::Archive::new(gzip).entries().expect("entries") {
            let mut entry = entry.expect("an entry");
            let mut content = Vec::new();
            entry.read_to_end(&mut content).expect("its content");
            let header = entry.header();
            let number = |value: std::io::Result<u64>| value.expect("a number");
            assert_eq!(number(header.mtime()), 0);
            assert_eq!((number(header.uid()), number(header.gid())), (0, 0));
            let path = entry.path().expect("a path").display().to_string();
            members.push((path, header.mode().expect("a mode"), content));
        }
        let expected = [
            ("kubectl-podward".to_owned(), 0o755, b"\x7fELF".to_vec()),
            ("LICENSE".to_owned(), 0o644, b"Apache".to_vec()),
        ];
        assert_eq!(members, expected);
    }

    #[test]
    fn the_checksum_is_that_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(checksum_line(b"", "x.tar.gz"), format!("{empty}  x.tar.gz\n"));
    }
}
