//! Writes the protocol's primitive types. A value that is too long for its length field is refused, never cut.

/// A text or list to send that is too long for its length field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} has length {length}, but the protocol allows at most {max}")]
pub struct TooLong {
    pub what: &'static str,
    pub length: usize,
    pub max: usize,
}

pub fn short_length(what: &'static str, length: usize) -> Result<u16, TooLong> {
    u16::try_from(length).map_err(|_| TooLong { what, length, max: u16::MAX.into() })
}

pub fn length(what: &'static str, length: usize) -> Result<i32, TooLong> {
    i32::try_from(length).map_err(|_| TooLong { what, length, max: i32::MAX as usize })
}

pub trait Write {
    fn out(&mut self) -> &mut Vec<u8>;

    fn u8(&mut self, value: u8) {
        self.out().push(value);
    }

    fn u16(&mut self, value: u16) {
        self.out().extend_from_slice(&value.to_be_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.out().extend_from_slice(&value.to_be_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.out().extend_from_slice(&value.to_be_bytes());
    }

    fn string(&mut self, what: &'static str, text: &str) -> Result<(), TooLong> {
        self.short_bytes(what, text.as_bytes())
    }

    fn long_string(&mut self, what: &'static str, text: &str) -> Result<(), TooLong> {
        self.bytes(what, text.as_bytes())
    }

    fn short_bytes(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), TooLong> {
        let length = short_length(what, bytes.len())?;
        self.u16(length);
        self.out().extend_from_slice(bytes);
        Ok(())
    }

    fn bytes(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), TooLong> {
        let length = length(what, bytes.len())?;
        self.i32(length);
        self.out().extend_from_slice(bytes);
        Ok(())
    }
}

impl Write for Vec<u8> {
    fn out(&mut self) -> &mut Vec<u8> {
        self
    }
}
