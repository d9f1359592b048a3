//! The native protocol as bytes. Pure, no I/O.
//!
//! All input is bounded: every length and count is compared with the bytes that are present before memory is reserved
//! for it, types nest to a fixed depth, and wrong bytes are returned as [`Malformed`].

mod class;
pub mod compress;
mod consistency;
pub mod crc;
pub mod envelope;
pub mod frame;
mod kind;
mod malformed;
mod metadata;
mod notice;
mod read;
mod refusal;
pub mod request;
mod response;
pub mod segment;
mod write;

pub use compress::Compression;
pub use consistency::{Consistency, Serial};
pub use envelope::{Envelope, Opcode, Version};
pub use kind::{Field, Type, UserType};
pub use malformed::Malformed;
pub use metadata::{Column, Layout, Metadata, PreparedStatement};
pub use notice::{Change, Notice, SchemaChange, Topic};
pub use read::Reader;
pub use refusal::{Code, Refusal};
pub use request::{Batch, BatchKind, BoundValues, Parameters, Request};
pub use response::{Answer, Response};

#[deprecated(since = "0.1.0", note = "renamed to BoundValues")]
pub type Bound = BoundValues;
#[deprecated(since = "0.1.0", note = "renamed to PreparedStatement")]
pub type Prepared = PreparedStatement;
