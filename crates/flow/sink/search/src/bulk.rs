//! Many writes in one request. Each carries its version: one that is not newer than what the index holds is refused by
//! the server, item by item, so the same bulk may arrive twice and in any order.

use bytes::Bytes;
use serde::Serialize;

/// ```
/// use honeyflow_sink_search::Bulk;
///
/// let mut bulk = Bulk::default();
/// bulk.index("books", "7", 41, &serde_json::json!({"title": "Momo"}))?;
/// bulk.delete("books", "8", 42)?;
/// assert_eq!(bulk.len(), 2);
/// # Ok::<(), honeyflow_sink_search::Unfit>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Bulk {
    lines: Vec<u8>,
    count: usize,
}

/// Why something cannot stand in a bulk.
#[derive(Debug, thiserror::Error)]
pub enum Unfit {
    #[error("version {0} is beyond what an index can hold, which is {max}", max = i64::MAX)]
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
    pub fn index(&mut self, index: &str, id: &str, version: u64, document: &impl Serialize) -> Result<(), Unfit> {
        let before = self.lines.len();
        self.line(&Action::Index(address(index, id, version)?))?;
        self.line(document).inspect_err(|_| self.lines.truncate(before))?;
        self.count += 1;
        Ok(())
    }

    /// # Errors
    /// The bulk is then as it was before.
    pub fn delete(&mut self, index: &str, id: &str, version: u64) -> Result<(), Unfit> {
        self.line(&Action::Delete(address(index, id, version)?))?;
        self.count += 1;
        Ok(())
    }

    /// How many writes it has.
    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How long its request is.
    pub fn bytes(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.lines.into()
    }

    /// Compact JSON has no line break in it.
    fn line(&mut self, value: &impl Serialize) -> Result<(), Unfit> {
        let before = self.lines.len();
        let written = serde_json::to_writer(&mut self.lines, value);
        written.inspect_err(|_| self.lines.truncate(before))?;
        self.lines.push(b'\n');
        Ok(())
    }
}

fn address<'a>(index: &'a str, id: &'a str, version: u64) -> Result<Address<'a>, Unfit> {
    if i64::try_from(version).is_err() {
        return Err(Unfit::Version(version));
    }
    Ok(Address { _index: index, _id: id, version, version_type: "external" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_write_is_its_own_lines() {
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
    fn what_does_not_fit_leaves_nothing_behind() {
        struct Unwritable;
        impl Serialize for Unwritable {
            fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                Err(serde::ser::Error::custom("no"))
            }
        }
        let mut bulk = Bulk::default();
        assert!(matches!(bulk.index("books", "1", 1 << 63, &json!({})), Err(Unfit::Version(_))));
        assert!(matches!(bulk.index("books", "1", 1, &Unwritable), Err(Unfit::Document(_))));
        assert!(bulk.is_empty() && bulk.bytes() == 0);
    }
}
