//! Many writes in one request. Each write has a version: the server refuses each write that is not newer than what the
//! index holds, so the same bulk may arrive twice and in any order.

use bytes::Bytes;
use serde::Serialize;

/// The body of a `_bulk` request.
///
/// ```
/// use honeyflow_sink_search::Bulk;
///
/// let mut bulk = Bulk::default();
/// bulk.index("books", "7", 41, &serde_json::json!({"title": "Momo"}))?;
/// bulk.delete("books", "8", 42)?;
/// assert_eq!(bulk.len(), 2);
/// # Ok::<(), honeyflow_sink_search::BulkError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bulk {
    lines: Vec<u8>,
    count: usize,
}

/// Why a write cannot be added to a bulk.
#[derive(Debug, thiserror::Error)]
pub enum BulkError {
    #[error("version {0} is too large; an index can hold at most {max}", max = i64::MAX)]
    Version(u64),
    #[error("the document cannot be written as JSON")]
    Document(#[from] serde_json::Error),
}

#[derive(Serialize)]
struct Address<'a> {
    _index: &'a str,
    _id: &'a str,
    version: u64,
    version_type: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Action<'a> {
    Index(Address<'a>),
    Delete(Address<'a>),
}

impl Bulk {
    /// Replaces the whole document.
    ///
    /// # Errors
    /// The bulk is then as it was before.
    pub fn index(&mut self, index: &str, id: &str, version: u64, document: &impl Serialize) -> Result<(), BulkError> {
        let before = self.lines.len();
        self.line(&Action::Index(address(index, id, version)?))?;
        self.line(document).inspect_err(|_| self.lines.truncate(before))?;
        self.count += 1;
        Ok(())
    }

    /// # Errors
    /// The bulk is then as it was before.
    pub fn delete(&mut self, index: &str, id: &str, version: u64) -> Result<(), BulkError> {
        self.line(&Action::Delete(address(index, id, version)?))?;
        self.count += 1;
        Ok(())
    }

    /// The number of writes.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The size of the request body.
    pub fn bytes(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.lines.into()
    }

    /// Appends one line. Compact JSON contains no line break.
    fn line(&mut self, value: &impl Serialize) -> Result<(), BulkError> {
        let before = self.lines.len();
        let written = serde_json::to_writer(&mut self.lines, value);
        written.inspect_err(|_| self.lines.truncate(before))?;
        self.lines.push(b'\n');
        Ok(())
    }
}

fn address<'a>(index: &'a str, id: &'a str, version: u64) -> Result<Address<'a>, BulkError> {
    if i64::try_from(version).is_err() {
        return Err(BulkError::Version(version));
    }
    Ok(Address { _index: index, _id: id, version, version_type: "external" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_write_has_its_own_lines() {
        let mut bulk = Bulk::default();
        bulk.index("books", "a\n\"b", 9_007_199_254_740_993, &json!({"title": "two\nlines"})).unwrap();
        bulk.delete("books", "c", 0).unwrap();
        let expected = concat!(
            r#"{"index":{"_index":"books","_id":"a\n\"b","version":9007199254740993,"version_type":"external"}}"#,
            "\n",
            r#"{"title":"two\nlines"}"#,
            "\n",
            r#"{"delete":{"_index":"books","_id":"c","version":0,"version_type":"external"}}"#,
            "\n",
        );
        assert_eq!(bulk.len(), 2);
        assert_eq!(String::from_utf8(bulk.lines).unwrap(), expected);
    }

    #[test]
    fn a_write_that_fails_leaves_the_bulk_unchanged() {
        struct Unwritable;
        impl Serialize for Unwritable {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("no"))
            }
        }
        let mut bulk = Bulk::default();
        assert!(matches!(bulk.index("books", "1", 1 << 63, &json!({})), Err(BulkError::Version(_))));
        assert!(matches!(bulk.index("books", "1", 1, &Unwritable), Err(BulkError::Document(_))));
        assert!(bulk.is_empty() && bulk.bytes() == 0);
    }
}
