//! CQL over the native protocol, versions 4 and 5.
//!
//! `wire` turns bytes into messages and back, and believes nothing that a server says about lengths, counts or types.
//! `value` is what stands in cells, `rows` the answers that hold them. Knows nothing of Honeyflow.

pub mod conditional;
pub mod rows;
pub mod token;
pub mod value;
pub mod wire;

pub use rows::{FromRow, Row, Rows};
pub use value::{Bind, BindAll, FromCell, Unfit, Value};
pub use wire::{Consistency, Malformed, Type, Version};
