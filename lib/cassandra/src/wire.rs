//! The native protocol as bytes: pure, no I/O.
//!
//! Whatever arrives is bounded: every length and count is compared with the bytes that are really there before
//! anything is reserved by it, types nest to a stated depth, and what is wrong comes back as [`Malformed`].

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
pub use metadata::{Column, Layout, Metadata, Prepared};
pub use notice::{Change, Notice, SchemaChange, Topic};
pub use read::Reader;
pub use refusal::{Code, Refusal};
pub use request::{Batch, BatchKind, Bound, Parameters, Request};
pub use response::{Answer, Response};
