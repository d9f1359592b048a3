//! Messages of a server, encoded by hand for tests.

use honeyflow_cassandra::wire::{Type, Version};

#[derive(Clone, Default)]
pub struct Body(pub Vec<u8>);

impl Body {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn raw(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u8(self, value: u8) -> Self {
        self.raw(&[value])
    }

    pub fn u16(self, value: u16) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub fn i32(self, value: i32) -> Self {
        self.raw(&value.to_be_bytes())
    }

    pub fn count(self, count: usize) -> Self {
        self.i32(count.try_into().unwrap())
    }

    pub fn string(self, text: &str) -> Self {
        self.u16(text.len() as u16).raw(text.as_bytes())
    }

    pub fn strings(self, texts: &[&str]) -> Self {
        texts.iter().fold(self.u16(texts.len() as u16), |body, text| body.string(text))
    }

    pub fn short_bytes(self, bytes: &[u8]) -> Self {
        self.u16(bytes.len() as u16).raw(bytes)
    }

    pub fn bytes(self, bytes: Option<&[u8]>) -> Self {
        match bytes {
            None => self.i32(-1),
            Some(bytes) => self.count(bytes.len()).raw(bytes),
        }
    }

    pub fn kind(self, kind: &Type) -> Self {
        match kind {
            Type::List(of) => self.u16(0x20).kind(of),
            Type::Set(of) => self.u16(0x22).kind(of),
            Type::Map(of) => self.u16(0x21).kind(&of.0).kind(&of.1),
            Type::Tuple(parts) => parts.iter().fold(self.u16(0x31).u16(parts.len() as u16), Self::kind),
            Type::User(of) => {
                let start = self.u16(0x30).string(&of.keyspace).string(&of.name).u16(of.fields.len() as u16);
                of.fields.iter().fold(start, |body, field| body.string(&field.name).kind(&field.kind))
            }
            Type::Vector(of, count) => {
                let marshal = "org.apache.cassandra.db.marshal.";
                assert_eq!(**of, Type::Float);
                self.u16(0).string(&format!("{marshal}VectorType({marshal}FloatType , {count})"))
            }
            Type::Custom(class) => self.u16(0).string(class),
            Type::Text => self.u16(0x0d),
            simple => {
                let names = [
                    "ascii",
                    "bigint",
                    "blob",
                    "boolean",
                    "counter",
                    "decimal",
                    "double",
                    "float",
                    "int",
                    "",
                    "timestamp",
                    "uuid",
                    "",
                    "varint",
                    "timeuuid",
                    "inet",
                    "date",
                    "time",
                    "smallint",
                    "tinyint",
                    "duration",
                ];
                let at = names.iter().position(|name| *name == simple.to_string()).expect("a simple type");
                self.u16(at as u16 + 1)
            }
        }
    }
}

pub type Cells = Vec<Option<Vec<u8>>>;

/// A RESULT with rows of the table `k.t`.
pub fn rows(columns: &[(&str, Type)], rows: &[Cells], next_page: Option<&[u8]>) -> Vec<u8> {
    let flags = 1 | if next_page.is_some() { 2 } else { 0 };
    let body = Body::new().i32(2).i32(flags).count(columns.len());
    let body = next_page.map_or(body.clone(), |page| body.bytes(Some(page))).string("k").string("t");
    let body = columns.iter().fold(body, |body, (name, kind)| body.string(name).kind(kind));
    cells(body, rows).0
}

/// A RESULT with rows whose columns are left out.
pub fn bare_rows(columns: usize, rows: &[Cells]) -> Vec<u8> {
    cells(Body::new().i32(2).i32(4).count(columns), rows).0
}

fn cells(body: Body, rows: &[Cells]) -> Body {
    let body = body.count(rows.len());
    rows.iter().flatten().fold(body, |body, cell| body.bytes(cell.as_deref()))
}

/// A RESULT for a prepared statement of the table `k.t`.
pub fn prepared(
    version: Version,
    id: &[u8],
    parameters: &[(&str, Type)],
    key: &[u16],
    columns: &[(&str, Type)],
) -> Vec<u8> {
    let body = Body::new().i32(4).short_bytes(id);
    let body = if version == Version::V5 { body.short_bytes(b"columns-1") } else { body };
    let body = body.i32(i32::from(!parameters.is_empty())).count(parameters.len()).count(key.len());
    let body = key.iter().fold(body, |body, at| body.u16(*at));
    let body = if parameters.is_empty() { body } else { body.string("k").string("t") };
    let body = parameters.iter().fold(body, |body, (name, kind)| body.string(name).kind(kind));
    let body = body.i32(if columns.is_empty() { 4 } else { 1 }).count(columns.len());
    let body = if columns.is_empty() { body } else { body.string("k").string("t") };
    columns.iter().fold(body, |body, (name, kind)| body.string(name).kind(kind)).0
}

pub fn error(code: i32, message: &str, more: Body) -> Vec<u8> {
    [Body::new().i32(code).string(message).0, more.0].concat()
}

pub mod opcode {
    pub const ERROR: u8 = 0x00;
    pub const READY: u8 = 0x02;
    pub const AUTHENTICATE: u8 = 0x03;
    pub const SUPPORTED: u8 = 0x06;
    pub const RESULT: u8 = 0x08;
    pub const EVENT: u8 = 0x0c;
    pub const AUTH_CHALLENGE: u8 = 0x0e;
    pub const AUTH_SUCCESS: u8 = 0x10;
}

/// A message of a server.
pub fn message(version: Version, flags: u8, stream: i16, opcode: u8, body: &[u8]) -> Vec<u8> {
    let header = Body::new().u8(0x80 | version.number()).u8(flags).raw(&stream.to_be_bytes()).u8(opcode);
    header.bytes(Some(body)).0
}
