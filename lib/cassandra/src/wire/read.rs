//! Reads the protocol's primitive types from bytes, and never beyond their end.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use uuid::Uuid;

use super::Malformed;

#[derive(Debug, Clone)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    /// The number of unread bytes.
    pub fn left(&self) -> usize {
        self.left.len()
    }

    /// Returns the bytes that `later`, a clone of this reader, has read since it was cloned.
    pub fn until(&self, later: &Reader<'_>) -> &'a [u8] {
        &self.left[..self.left.len().saturating_sub(later.left.len())]
    }

    /// Skips these bytes if they come next.
    pub fn skip(&mut self, bytes: &[u8]) -> bool {
        let rest = self.left.strip_prefix(bytes);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }

    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    pub fn take(&mut self, what: &'static str, count: usize) -> Result<&'a [u8], Malformed> {
        let short = Malformed::Short { what, wanted: count as u64, left: self.left.len() };
        let (taken, left) = self.left.split_at_checked(count).ok_or(short)?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Malformed> {
        let short = Malformed::Short { what, wanted: N as u64, left: self.left.len() };
        let (taken, left) = self.left.split_first_chunk::<N>().ok_or(short)?;
        self.left = left;
        Ok(*taken)
    }

    pub fn u8(&mut self, what: &'static str) -> Result<u8, Malformed> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub fn u16(&mut self, what: &'static str) -> Result<u16, Malformed> {
        self.array(what).map(u16::from_be_bytes)
    }

    pub fn i32(&mut self, what: &'static str) -> Result<i32, Malformed> {
        self.array(what).map(i32::from_be_bytes)
    }

    pub fn i64(&mut self, what: &'static str) -> Result<i64, Malformed> {
        self.array(what).map(i64::from_be_bytes)
    }

    pub fn uuid(&mut self, what: &'static str) -> Result<Uuid, Malformed> {
        self.array(what).map(Uuid::from_bytes)
    }

    /// Reads a count of elements that take at least `each` bytes; fails if there are not enough bytes for them.
    pub fn count(&mut self, what: &'static str, each: usize) -> Result<usize, Malformed> {
        let announced = self.i32(what)?;
        let count = usize::try_from(announced).map_err(|_| Malformed::Value { what, value: announced.into() })?;
        self.room_for(what, count, each)
    }

    /// Reads a count of two bytes, with the same check.
    pub fn short_count(&mut self, what: &'static str, each: usize) -> Result<usize, Malformed> {
        let count = self.u16(what)?.into();
        self.room_for(what, count, each)
    }

    pub fn room_for(&self, what: &'static str, count: usize, each: usize) -> Result<usize, Malformed> {
        let wanted = (count as u64).saturating_mul(each as u64);
        if wanted > self.left.len() as u64 {
            return Err(Malformed::Short { what, wanted, left: self.left.len() });
        }
        Ok(count)
    }

    pub fn string(&mut self, what: &'static str) -> Result<&'a str, Malformed> {
        let length = self.u16(what)?.into();
        text(what, self.take(what, length)?)
    }

    pub fn strings(&mut self, what: &'static str) -> Result<Vec<String>, Malformed> {
        let count = self.short_count(what, 2)?;
        (0..count).map(|_| self.string(what).map(str::to_owned)).collect()
    }

    pub fn string_multimap(&mut self, what: &'static str) -> Result<BTreeMap<String, Vec<String>>, Malformed> {
        let count = self.short_count(what, 4)?;
        (0..count).map(|_| Ok((self.string(what)?.to_owned(), self.strings(what)?))).collect()
    }

    pub fn short_bytes(&mut self, what: &'static str) -> Result<&'a [u8], Malformed> {
        let length = self.u16(what)?.into();
        self.take(what, length)
    }

    /// `None` is the protocol's null.
    pub fn bytes(&mut self, what: &'static str) -> Result<Option<&'a [u8]>, Malformed> {
        match usize::try_from(self.i32(what)?) {
            Ok(length) => self.take(what, length).map(Some),
            Err(_) => Ok(None),
        }
    }

    pub fn address(&mut self, what: &'static str) -> Result<IpAddr, Malformed> {
        match self.u8(what)? {
            4 => self.array::<4>(what).map(IpAddr::from),
            16 => self.array::<16>(what).map(IpAddr::from),
            other => Err(Malformed::Value { what, value: other.into() }),
        }
    }

    pub fn socket_address(&mut self, what: &'static str) -> Result<SocketAddr, Malformed> {
        let address = self.address(what)?;
        let port = self.i32(what)?;
        let port = u16::try_from(port).map_err(|_| Malformed::Value { what, value: port.into() })?;
        Ok(SocketAddr::new(address, port))
    }
}

pub fn text<'a>(what: &'static str, bytes: &'a [u8]) -> Result<&'a str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed::Text { what })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_7_bytes_that_are_announced_but_missing_are_an_error() {
        let short = |bytes: &[u8]| Reader::new(bytes).string("name").unwrap_err();
        assert_eq!(short(&[0, 5, b'a']), Malformed::Short { what: "name", wanted: 5, left: 1 });
        assert_eq!(short(&[0]), Malformed::Short { what: "name", wanted: 2, left: 1 });
        assert_eq!(
            Reader::new(&[0x7f, 0xff, 0xff, 0xff]).bytes("cell"),
            Err(Malformed::Short { what: "cell", wanted: 0x7fff_ffff, left: 0 })
        );
    }

    #[test]
    fn cq_7_a_count_beyond_the_bytes_is_refused() {
        assert!(Reader::new(&[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]).count("rows", 4).is_err());
        assert!(Reader::new(&[0xff, 0xff, 0xff, 0xff]).count("rows", 4).is_err());
        assert_eq!(Reader::new(&[0, 0, 0, 1, 0, 0, 0, 0]).count("rows", 4), Ok(1));
        assert!(Reader::new(&[0xff, 0xff, 0, 0]).strings("names").is_err());
    }

    #[test]
    fn null_and_empty_differ() {
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff]).bytes("cell"), Ok(None));
        assert_eq!(Reader::new(&[0, 0, 0, 0]).bytes("cell"), Ok(Some(&[][..])));
    }
}
