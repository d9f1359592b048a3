//! The types of columns.

use std::fmt;
use std::sync::Arc;

use super::class;
use super::{Malformed, Reader};

/// How deep a type may nest. The protocol sets no limit, but the stack has one.
pub const DEPTH_MAX: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Type {
    Ascii,
    Bigint,
    Blob,
    Boolean,
    Counter,
    Decimal,
    Double,
    Float,
    Int,
    Timestamp,
    Uuid,
    Text,
    Varint,
    Timeuuid,
    Inet,
    Date,
    Time,
    Smallint,
    Tinyint,
    Duration,
    List(Box<Type>),
    Set(Box<Type>),
    Map(Box<(Type, Type)>),
    Tuple(Vec<Type>),
    User(Arc<UserType>),
    Vector(Box<Type>, usize),
    /// A custom type of the server, by the name of its class.
    Custom(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct UserType {
    pub keyspace: String,
    pub name: String,
    pub fields: Vec<Field>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Field {
    pub name: Arc<str>,
    pub kind: Type,
}

impl Type {
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self::read_within(from, DEPTH_MAX)
    }

    fn read_within(from: &mut Reader<'_>, depth: usize) -> Result<Self, Malformed> {
        let Some(depth) = depth.checked_sub(1) else { return Err(Malformed::Deep { max: DEPTH_MAX }) };
        let code = from.u16("a type")?;
        Ok(match code {
            0x00 => class::type_of_class(from.string("the class of a type")?),
            0x20 => Self::List(Box::new(Self::read_within(from, depth)?)),
            0x21 => Self::Map(Box::new((Self::read_within(from, depth)?, Self::read_within(from, depth)?))),
            0x22 => Self::Set(Box::new(Self::read_within(from, depth)?)),
            0x30 => {
                let keyspace = from.string("the keyspace of a type")?.to_owned();
                let name = from.string("the name of a type")?.to_owned();
                let count = from.short_count("the fields of a type", 4)?;
                let field = |from: &mut Reader<'_>| {
                    let name = from.string("the name of a field")?.into();
                    Ok(Field { name, kind: Self::read_within(from, depth)? })
                };
                let fields = (0..count).map(|_| field(from)).collect::<Result<_, Malformed>>()?;
                Self::User(Arc::new(UserType { keyspace, name, fields }))
            }
            0x31 => {
                let count = from.short_count("the parts of a tuple", 2)?;
                Self::Tuple((0..count).map(|_| Self::read_within(from, depth)).collect::<Result<_, _>>()?)
            }
            simple => {
                let known = SIMPLE.iter().find(|(code, _, _)| *code == simple);
                known.ok_or(Malformed::Value { what: "a type", value: simple.into() })?.1.clone()
            }
        })
    }

    /// The length of every value, if all have the same.
    pub fn fixed_bytes(&self) -> Option<usize> {
        Some(match self {
            Self::Boolean | Self::Tinyint => 1,
            Self::Smallint => 2,
            Self::Int | Self::Float | Self::Date => 4,
            Self::Bigint | Self::Counter | Self::Double | Self::Timestamp | Self::Time => 8,
            Self::Uuid | Self::Timeuuid => 16,
            Self::Vector(of, count) => of.fixed_bytes()?.checked_mul(*count)?,
            _ => return None,
        })
    }
}

/// Types without parts: code, type, name in CQL.
pub(super) const SIMPLE: &[(u16, Type, &str)] = &[
    (0x01, Type::Ascii, "ascii"),
    (0x02, Type::Bigint, "bigint"),
    (0x03, Type::Blob, "blob"),
    (0x04, Type::Boolean, "boolean"),
    (0x05, Type::Counter, "counter"),
    (0x06, Type::Decimal, "decimal"),
    (0x07, Type::Double, "double"),
    (0x08, Type::Float, "float"),
    (0x09, Type::Int, "int"),
    (0x0b, Type::Timestamp, "timestamp"),
    (0x0c, Type::Uuid, "uuid"),
    (0x0d, Type::Text, "text"),
    (0x0e, Type::Varint, "varint"),
    (0x0f, Type::Timeuuid, "timeuuid"),
    (0x10, Type::Inet, "inet"),
    (0x11, Type::Date, "date"),
    (0x12, Type::Time, "time"),
    (0x13, Type::Smallint, "smallint"),
    (0x14, Type::Tinyint, "tinyint"),
    (0x15, Type::Duration, "duration"),
];

/// Formats the type as in CQL.
impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::List(of) => write!(f, "list<{of}>"),
            Self::Set(of) => write!(f, "set<{of}>"),
            Self::Map(of) => write!(f, "map<{}, {}>", of.0, of.1),
            Self::Tuple(parts) => {
                f.write_str("tuple<")?;
                for (at, part) in parts.iter().enumerate() {
                    write!(f, "{}{part}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str(">")
            }
            Self::User(of) => write!(f, "{}.{}", of.keyspace, of.name),
            Self::Vector(of, count) => write!(f, "vector<{of}, {count}>"),
            Self::Custom(class) => write!(f, "'{class}'"),
            simple => {
                f.write_str(SIMPLE.iter().find(|(_, kind, _)| kind == simple).map_or("unknown", |(_, _, name)| *name))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Type, Malformed> {
        Type::read(&mut Reader::new(bytes))
    }

    #[test]
    fn simple_types_are_known_by_their_code_and_name() {
        for (code, kind, name) in SIMPLE {
            assert_eq!(read(&code.to_be_bytes()).as_ref(), Ok(kind));
            assert_eq!(kind.to_string(), *name);
        }
        assert!(read(&[0, 0x0a]).is_err());
    }

    #[test]
    fn nested_types_are_read_as_they_are_written() {
        let map = read(&[0, 0x21, 0, 0x0d, 0, 0x20, 0, 0x09]).unwrap();
        assert_eq!(map.to_string(), "map<text, list<int>>");
        let tuple = read(&[0, 0x31, 0, 2, 0, 0x09, 0, 0x22, 0, 0x0c]).unwrap();
        assert_eq!(tuple.to_string(), "tuple<int, set<uuid>>");
        let user = read(b"\0\x30\0\x02ks\0\x02at\0\x01\0\x03zip\0\x0d").unwrap();
        let fields = vec![Field { name: "zip".into(), kind: Type::Text }];
        assert_eq!(user, Type::User(Arc::new(UserType { keyspace: "ks".to_owned(), name: "at".to_owned(), fields })));
    }

    #[test]
    fn cq_7_types_nest_to_a_fixed_depth() {
        let nested = |levels: usize| {
            let mut bytes = [0, 0x20].repeat(levels);
            bytes.extend([0, 0x09]);
            read(&bytes)
        };
        assert!(nested(DEPTH_MAX - 1).is_ok());
        assert_eq!(nested(DEPTH_MAX), Err(Malformed::Deep { max: DEPTH_MAX }));
        assert_eq!(nested(100_000), Err(Malformed::Deep { max: DEPTH_MAX }));
    }

    #[test]
    fn cq_7_a_count_of_parts_beyond_the_bytes_is_refused() {
        assert!(matches!(read(&[0, 0x31, 0xff, 0xff, 0, 9]), Err(Malformed::Short { .. })));
        assert!(matches!(read(b"\0\x30\0\0\0\0\xff\xff\0\0"), Err(Malformed::Short { .. })));
    }
}
