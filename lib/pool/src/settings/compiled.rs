//! Settings as a small binary dictionary: immutable and checksummed, built once, and stored in a file or in the
//! program.
//!
//! ```text
//! "HFPL" | version u16 | length of the rest u32 | CRC-32 of the rest u32 | table
//! table: count u32, then keys in ascending order, each text and value
//! value: tag u8, then nothing (0 false, 1 true), i64 (2), text (3), count u32 and values (4), table (5)
//! text:  length u32, UTF-8
//! ```
//! Numbers are little-endian. The same settings always give the same bytes.

use std::{fmt, sync::Arc};

use super::{
    Provider, Settings, SettingsError,
    table::{Table, Value},
};

const MAGIC: &[u8; 4] = b"HFPL";
const VERSION: u16 = 1;
const HEADER: usize = 14;
/// The deepest nesting of tables; valid settings never come near it.
const DEPTH_MAX: u32 = 16;

/// Compiled settings and their bytes. They are decoded once and read without a lock.
///
/// ```
/// use honeyflow_pool::{CompiledSettings, Provider, Settings};
///
/// let settings = Settings { tries: 2, ..Settings::default() };
/// let bytes = CompiledSettings::build(&settings).unwrap().bytes().to_vec();
///
/// let compiled = CompiledSettings::shared(bytes.into()).unwrap();
/// assert_eq!(compiled.settings().unwrap(), settings);
/// ```
#[derive(Clone)]
pub struct CompiledSettings {
    bytes: Bytes,
    settings: Arc<Settings>,
}

#[derive(Clone)]
enum Bytes {
    Shared(Arc<[u8]>),
    Embedded(&'static [u8]),
}

/// Why bytes cannot be decoded as settings.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompiledError {
    #[error("not compiled settings; compile them again")]
    NotOurs,
    #[error("compiled settings have version {0}, this program reads version {VERSION}; compile them again")]
    Version(u16),
    #[error("compiled settings have a wrong length: {found} bytes instead of {told}; compile them again")]
    Length { told: usize, found: usize },
    #[error("compiled settings are damaged: checksum {found:08x} instead of {told:08x}; compile them again")]
    Checksum { told: u32, found: u32 },
    #[error("compiled settings are malformed at byte {at}: {what}; compile them again")]
    Malformed { at: usize, what: &'static str },
    #[error(transparent)]
    Settings(#[from] SettingsError),
}

impl CompiledSettings {
    /// # Errors
    /// What is wrong with the settings, or that they hold a function.
    pub fn build(settings: &Settings) -> Result<CompiledSettings, SettingsError> {
        settings.check()?;
        let mut rest = Vec::with_capacity(2048);
        write_table(&mut rest, &settings.table()?);
        let mut bytes = Vec::with_capacity(HEADER + rest.len());
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&count_of(rest.len()));
        bytes.extend_from_slice(&crc32fast::hash(&rest).to_le_bytes());
        bytes.extend_from_slice(&rest);
        Ok(CompiledSettings { bytes: Bytes::Shared(bytes.into()), settings: Arc::new(settings.clone()) })
    }

    /// Decodes bytes that were read at run time.
    ///
    /// # Errors
    /// What is wrong with the bytes; then nothing of them is used.
    pub fn shared(bytes: Arc<[u8]>) -> Result<CompiledSettings, CompiledError> {
        let settings = Arc::new(decode(&bytes)?);
        Ok(CompiledSettings { bytes: Bytes::Shared(bytes), settings })
    }

    /// Decodes bytes that are part of the program: `include_bytes!`.
    ///
    /// # Errors
    /// What is wrong with the bytes; then nothing of them is used.
    pub fn embedded(bytes: &'static [u8]) -> Result<CompiledSettings, CompiledError> {
        Ok(CompiledSettings { bytes: Bytes::Embedded(bytes), settings: Arc::new(decode(bytes)?) })
    }

    /// The encoded settings, for a file.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shared(bytes) => bytes,
            Bytes::Embedded(bytes) => bytes,
        }
    }
}

impl Provider for CompiledSettings {
    fn settings(&self) -> Result<Settings, SettingsError> {
        Ok((*self.settings).clone())
    }
}

impl fmt::Debug for CompiledSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompiledSettings")
            .field("bytes", &self.bytes().len())
            .field("settings", &self.settings)
            .finish()
    }
}

fn decode(bytes: &[u8]) -> Result<Settings, CompiledError> {
    let mut header = Reader { bytes, at: 0 };
    let (Ok(magic), Ok(version)) = (header.take(4), header.take(2)) else { return Err(CompiledError::NotOurs) };
    if magic != MAGIC {
        return Err(CompiledError::NotOurs);
    }
    let version = u16::from_le_bytes([version[0], version[1]]);
    if version != VERSION {
        return Err(CompiledError::Version(version));
    }
    let (told, checksum) = (header.number()? as usize, header.number()?);
    let rest = &bytes[header.at..];
    if rest.len() != told {
        return Err(CompiledError::Length { told, found: rest.len() });
    }
    let found = crc32fast::hash(rest);
    if found != checksum {
        return Err(CompiledError::Checksum { told: checksum, found });
    }
    let mut reader = Reader { bytes, at: HEADER };
    let table = reader.table(0)?;
    if reader.at != bytes.len() {
        return Err(reader.malformed("more bytes than settings"));
    }
    Ok(Settings::from_table(&table)?)
}

fn count_of(length: usize) -> [u8; 4] {
    u32::try_from(length).expect("settings are far smaller than 4 GiB").to_le_bytes()
}

fn write_text(into: &mut Vec<u8>, text: &str) {
    into.extend_from_slice(&count_of(text.len()));
    into.extend_from_slice(text.as_bytes());
}

fn write_table(into: &mut Vec<u8>, table: &Table) {
    into.extend_from_slice(&count_of(table.len()));
    for (key, value) in table {
        write_text(into, key);
        write_value(into, value);
    }
}

fn write_value(into: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Boolean(flag) => into.push(u8::from(*flag)),
        Value::Integer(number) => {
            into.push(2);
            into.extend_from_slice(&number.to_le_bytes());
        }
        Value::Text(text) => {
            into.push(3);
            write_text(into, text);
        }
        Value::List(items) => {
            into.push(4);
            into.extend_from_slice(&count_of(items.len()));
            items.iter().for_each(|item| write_value(into, item));
        }
        Value::Table(table) => {
            into.push(5);
            write_table(into, table);
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn malformed(&self, what: &'static str) -> CompiledError {
        CompiledError::Malformed { at: self.at, what }
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], CompiledError> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| self.malformed("it ends too early"))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, CompiledError> {
        let taken = self.take(4)?;
        Ok(u32::from_le_bytes([taken[0], taken[1], taken[2], taken[3]]))
    }

    fn text(&mut self) -> Result<&'a str, CompiledError> {
        let length = self.number()? as usize;
        let taken = self.take(length)?;
        std::str::from_utf8(taken).map_err(|_| self.malformed("a text is not UTF-8"))
    }

    fn table(&mut self, depth: u32) -> Result<Table, CompiledError> {
        let mut table = Table::new();
        for _ in 0..self.number()? {
            let key = self.text()?;
            if table.last_key_value().is_some_and(|(last, _)| last.as_str() >= key) {
                return Err(self.malformed("its keys are not in order"));
            }
            let value = self.value(depth)?;
            table.insert(key.to_owned(), value);
        }
        Ok(table)
    }

    fn value(&mut self, depth: u32) -> Result<Value, CompiledError> {
        if depth > DEPTH_MAX {
            return Err(self.malformed("tables too deep within tables"));
        }
        let tag = self.take(1)?[0];
        Ok(match tag {
            0 | 1 => Value::Boolean(tag == 1),
            2 => {
                let mut number = [0; 8];
                number.copy_from_slice(self.take(8)?);
                Value::Integer(i64::from_le_bytes(number))
            }
            3 => Value::Text(self.text()?.to_owned()),
            4 => {
                let mut items = Vec::new();
                for _ in 0..self.number()? {
                    items.push(self.value(depth + 1)?);
                }
                Value::List(items)
            }
            5 => Value::Table(self.table(depth + 1)?),
            _ => return Err(self.malformed("no such kind of value")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(rest: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC.as_slice(), &VERSION.to_le_bytes(), &count_of(rest.len())].concat();
        bytes.extend_from_slice(&crc32fast::hash(rest).to_le_bytes());
        bytes.extend_from_slice(rest);
        bytes
    }

    /// PL-60: every flipped bit and every truncation gives the right error.
    #[test]
    fn pl_60_damaged_bytes_are_a_typed_error() {
        let built = CompiledSettings::build(&Settings::default()).unwrap();
        let good = built.bytes();
        for at in 0..good.len() {
            assert!(CompiledSettings::shared(good[..at].into()).is_err(), "cut at {at}");
            for bit in 0..8 {
                let mut bad = good.to_vec();
                bad[at] ^= 1 << bit;
                let error = CompiledSettings::shared(bad.into()).unwrap_err();
                let right = match at {
                    0..4 => error == CompiledError::NotOurs,
                    4..6 => matches!(error, CompiledError::Version(_)),
                    6..10 => matches!(error, CompiledError::Length { .. }),
                    _ => matches!(error, CompiledError::Checksum { .. }),
                };
                assert!(right, "bit {bit} of byte {at}: {error}");
            }
        }
        let longer = [good, b"x"].concat();
        assert!(matches!(CompiledSettings::shared(longer.into()), Err(CompiledError::Length { .. })));
    }

    /// PL-60: malformed content is refused even if its checksum is right.
    #[test]
    fn pl_60_malformed_content_with_a_good_checksum_is_a_typed_error() {
        let deep = [5_u8, 1, 0, 0, 0, 0, 0, 0, 0].repeat(200);
        let nonsense: [(&[u8], &str); 6] = [
            (&[], "it ends too early"),
            (&[255, 255, 255, 255], "it ends too early"),
            (&[1, 0, 0, 0, 1, 0, 0, 0, 0xFF, 0], "a text is not UTF-8"),
            (&[1, 0, 0, 0, 0, 0, 0, 0, 9], "no such kind of value"),
            (&[2, 0, 0, 0, 1, 0, 0, 0, b'b', 0, 1, 0, 0, 0, b'a', 0], "its keys are not in order"),
            (&[0, 0, 0, 0, 7], "more bytes than settings"),
        ];
        for (rest, why) in nonsense {
            let error = CompiledSettings::shared(sealed(rest).into()).unwrap_err();
            assert!(matches!(&error, CompiledError::Malformed { what, .. } if *what == why), "{rest:?}: {error}");
        }
        let rest = [&[1, 0, 0, 0, 0, 0, 0, 0], deep.as_slice()].concat();
        let error = CompiledSettings::shared(sealed(&rest).into()).unwrap_err().to_string();
        assert!(error.contains("too deep"), "{error}");
        let mut rest = Vec::new();
        write_table(
            &mut rest,
            &Table::from([("tries".to_owned(), Value::from(99)), ("tires".to_owned(), Value::from(1))]),
        );
        let CompiledError::Settings(error) = CompiledSettings::shared(sealed(&rest).into()).unwrap_err() else {
            panic!("not of the settings");
        };
        assert_eq!(error.wrong.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["tires", "tries"]);
    }

    #[test]
    fn pl_60_a_function_cannot_be_compiled() {
        let mut settings = Settings::default();
        settings.filter.hook = Some(Arc::new(|_| true));
        assert_eq!(CompiledSettings::build(&settings).unwrap_err().wrong[0].0, "filter");
        assert!(CompiledSettings::build(&Settings { tries: 0, ..Settings::default() }).is_err());
    }
}
