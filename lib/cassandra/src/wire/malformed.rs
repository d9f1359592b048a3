//! The error for bytes that are not valid in the protocol.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("{what} ends early: {wanted} bytes are announced, {left} are present")]
    Short { what: &'static str, wanted: u64, left: usize },
    #[error("{what} cannot be {value}")]
    Value { what: &'static str, value: i64 },
    #[error("{what} is not UTF-8")]
    Text { what: &'static str },
    #[error("{what} has {bytes} bytes, but at most {max} are allowed (max-frame)")]
    Large { what: &'static str, bytes: u64, max: usize },
    #[error("a type nests deeper than {max} levels")]
    Deep { max: usize },
    #[error("the checksum of a segment's {part} is wrong")]
    Checksum { part: &'static str },
    #[error("{bytes} bytes too many after {what}")]
    Surplus { what: &'static str, bytes: usize },
    #[error("packed bytes do not unpack: {why}")]
    Packed { why: String },
    #[error("{what} is not what was expected: {found}")]
    Unexpected { what: &'static str, found: String },
}
