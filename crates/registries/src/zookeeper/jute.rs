//! Jute, the encoding of ZooKeeper's packets: big-endian numbers, and texts, bytes and lists after their length.

/// Bytes that do not encode what they should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packet is malformed: {0}")]
pub(super) struct Malformed(pub(super) &'static str);

/// Builds a packet.
#[derive(Debug, Default)]
pub(super) struct Encoder(Vec<u8>);

impl Encoder {
    pub(super) fn int(&mut self, value: i32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(&mut self, value: i64) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn bool(&mut self, value: bool) -> &mut Self {
        self.0.push(value.into());
        self
    }

    pub(super) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        // Requests are far smaller: the server accepts 1 MB.
        self.int(i32::try_from(value.len()).unwrap_or(i32::MAX));
        self.0.extend(value);
        self
    }

    pub(super) fn text(&mut self, value: &str) -> &mut Self {
        self.bytes(value.as_bytes())
    }

    /// Returns the packet after its length, as it is sent.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut frame = Self::default();
        frame.bytes(&self.0);
        frame.0
    }
}

/// Reads a packet from its start to its end.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    rest: &'a [u8],
}

impl<'a> Decoder<'a> {
    pub(super) fn new(packet: &'a [u8]) -> Self {
        Self { rest: packet }
    }

    pub(super) fn int(&mut self) -> Result<i32, Malformed> {
        self.array().map(i32::from_be_bytes)
    }

    pub(super) fn long(&mut self) -> Result<i64, Malformed> {
        self.array().map(i64::from_be_bytes)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Malformed> {
        self.array().map(|[byte]| byte != 0)
    }

    /// Reads bytes. Missing ones, with the length -1, are empty.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = self.int()?;
        if length == -1 {
            return Ok(&[]);
        }
        let length = usize::try_from(length).map_err(|_| Malformed("a length is negative"))?;
        let (bytes, rest) =
            self.rest.split_at_checked(length).ok_or(Malformed("a length exceeds the packet"))?;
        self.rest = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed("a text is not UTF-8"))
    }

    /// Reads a list of texts. A missing one is empty. `None` if there are more than `max`.
    pub(super) fn texts(&mut self, max: usize) -> Result<Option<Vec<String>>, Malformed> {
        let count = usize::try_from(self.int()?).unwrap_or_default();
        if count > max {
            return Ok(None);
        }
        let mut texts = Vec::new();
        for _ in 0..count {
            texts.push(self.text()?.to_owned());
        }
        Ok(Some(texts))
    }

    /// Drops bytes.
    pub(super) fn skip(&mut self, length: usize) -> Result<(), Malformed> {
        self.rest = self.rest.get(length..).ok_or(Malformed("it is too short"))?;
        Ok(())
    }

    /// Returns what is left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(Malformed("it is too short"))?;
        self.rest = rest;
        Ok(*array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut packet = Encoder::default();
        packet.int(-7).long(1 << 40).bool(true).text("ü").bytes(&[1, 2]).int(2).text("a").text("");
        let frame = packet.frame();
        let mut decoder = Decoder::new(&frame);
        let mut decoder = Decoder::new(decoder.bytes().unwrap());
        assert_eq!((decoder.int(), decoder.long(), decoder.bool()), (Ok(-7), Ok(1 << 40), Ok(true)));
        assert_eq!((decoder.text(), decoder.bytes()), (Ok("ü"), Ok(&[1, 2][..])));
        assert_eq!(decoder.texts(2), Ok(Some(vec!["a".to_owned(), String::new()])));
        assert_eq!(decoder.int(), Err(Malformed("it is too short")));
    }

    #[test]
    fn missing_values_are_empty() {
        let mut packet = Encoder::default();
        packet.int(-1).int(-1);
        let frame = packet.frame();
        let mut decoder = Decoder::new(&frame[4..]);
        assert_eq!((decoder.text(), decoder.texts(0)), (Ok(""), Ok(Some(Vec::new()))));
    }

    #[test]
    fn lengths_that_exceed_the_packet_are_errors() {
        for length in [5, i32::MAX, -2, i32::MIN] {
            let mut packet = Encoder::default();
            packet.int(length).int(0);
            let frame = packet.frame();
            assert!(Decoder::new(&frame[4..]).bytes().is_err(), "{length}");
        }
        let mut packet = Encoder::default();
        packet.int(3).text("a");
        assert!(Decoder::new(&packet.frame()[4..]).texts(3).is_err());
        assert_eq!(Decoder::new(&packet.frame()[4..]).texts(2), Ok(None));
    }

    #[test]
    fn a_text_has_to_be_utf_8() {
        let mut packet = Encoder::default();
        packet.bytes(&[0xff]);
        assert!(Decoder::new(&packet.frame()[4..]).text().is_err());
    }
}
