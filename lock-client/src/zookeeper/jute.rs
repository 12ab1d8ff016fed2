//! Jute, the encoding of ZooKeeper's messages: numbers are big-endian, and texts follow their length.

use super::failure::Failure;

/// A message that is written.
#[derive(Clone, Debug, Default)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn bool(mut self, value: bool) -> Self {
        self.0.push(value.into());
        self
    }

    pub(super) fn int(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn long(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    pub(super) fn bytes(self, value: &[u8]) -> Self {
        let length = value.len().try_into().expect("messages are short");
        self.int(length).raw(value)
    }

    pub(super) fn text(self, value: &str) -> Self {
        self.bytes(value.as_bytes())
    }

    /// Appends what is encoded already.
    pub(super) fn raw(mut self, encoded: &[u8]) -> Self {
        self.0.extend(encoded);
        self
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }
}

/// A message that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(encoded: &'a [u8]) -> Self {
        Self(encoded)
    }

    pub(super) fn bool(&mut self) -> Result<bool, Failure> {
        Ok(self.array::<1>()? != [0])
    }

    pub(super) fn int(&mut self) -> Result<i32, Failure> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    pub(super) fn long(&mut self) -> Result<i64, Failure> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Reads bytes. Bytes that are absent have the length -1.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Failure> {
        let length = self.int()?.max(0).unsigned_abs() as usize;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(Failure::malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    pub(super) fn text(&mut self) -> Result<&'a str, Failure> {
        str::from_utf8(self.bytes()?).map_err(|_| Failure::malformed())
    }

    pub(super) fn skip(&mut self, length: usize) -> Result<(), Failure> {
        self.0 = self.0.get(length..).ok_or_else(Failure::malformed)?;
        Ok(())
    }

    /// The bytes that were not read.
    pub(super) fn rest(&self) -> &'a [u8] {
        self.0
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let (array, rest) = self.0.split_first_chunk().ok_or_else(Failure::malformed)?;
        self.0 = rest;
        Ok(*array)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_read_as_it_was_written() {
        let message = Writer::default().int(-4).long(1 << 40).bool(true).text("żółw").bytes(&[]);
        let message = message.finish();
        let mut reader = Reader::new(&message);
        assert_eq!(reader.int().unwrap(), -4);
        assert_eq!(reader.long().unwrap(), 1 << 40);
        assert!(reader.bool().unwrap());
        assert_eq!(reader.text().unwrap(), "żółw");
        assert!(reader.bytes().unwrap().is_empty());
        assert!(reader.rest().is_empty());
    }

    #[test]
    fn message_that_is_cut_off_is_malformed() {
        let message = Writer::default().text("queue").finish();
        for length in 0..message.len() {
            assert!(Reader::new(&message[..length]).text().is_err(), "{length}");
        }
        assert!(Reader::new(&[0, 0, 0, 1, 0xff]).text().is_err(), "no UTF-8");
    }
}
