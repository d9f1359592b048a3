//! Notices: messages that a server sends without a request, after a client has subscribed to them.

use std::net::SocketAddr;

use super::{Malformed, Reader};

/// A topic of REGISTER.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topic {
    Topology,
    Status,
    Schema,
}

impl Topic {
    pub const ALL: [Self; 3] = [Self::Topology, Self::Status, Self::Schema];

    pub fn name(self) -> &'static str {
        match self {
            Self::Topology => "TOPOLOGY_CHANGE",
            Self::Status => "STATUS_CHANGE",
            Self::Schema => "SCHEMA_CHANGE",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    Added(SocketAddr),
    Removed(SocketAddr),
    Up(SocketAddr),
    Down(SocketAddr),
    Schema(SchemaChange),
    /// A notice of a later version of the protocol; it is ignored.
    Other(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Created,
    Updated,
    Dropped,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaChange {
    pub change: Change,
    /// KEYSPACE, TABLE, TYPE, FUNCTION or AGGREGATE.
    pub target: String,
    pub keyspace: String,
    /// The name of the object inside the keyspace.
    pub name: Option<String>,
}

impl Notice {
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let topic = from.string("the topic of a notice")?;
        if topic == Topic::Schema.name() {
            return SchemaChange::read(from).map(Self::Schema);
        }
        if topic != Topic::Topology.name() && topic != Topic::Status.name() {
            return Ok(Self::Other(topic.to_owned()));
        }
        let change = from.string("the change of a notice")?;
        let make = match change {
            "NEW_NODE" => Self::Added,
            "REMOVED_NODE" => Self::Removed,
            "UP" => Self::Up,
            "DOWN" => Self::Down,
            other => return Ok(Self::Other(format!("{topic} {other}"))),
        };
        from.socket_address("the address of a notice").map(make)
    }
}

impl SchemaChange {
    pub fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let change = match from.string("a change of schema")? {
            "CREATED" => Change::Created,
            "UPDATED" => Change::Updated,
            "DROPPED" => Change::Dropped,
            other => {
                return Err(Malformed::Unexpected {
                    what: "a change of schema",
                    found: other.chars().take(40).collect(),
                });
            }
        };
        let target = from.string("the target of a change")?.to_owned();
        let keyspace = from.string("the keyspace of a change")?.to_owned();
        let name =
            (target != "KEYSPACE").then(|| from.string("the name of a change").map(str::to_owned)).transpose()?;
        // Arguments of functions follow; they are not used.
        Ok(Self { change, target, keyspace, name })
    }
}
