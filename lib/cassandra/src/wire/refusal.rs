//! Errors that a server sends instead of a result.

use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;

use super::envelope::Version;
use super::{Consistency, Malformed, Reader};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    pub code: Code,
    pub message: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Code {
    Server,
    Protocol,
    BadCredentials,
    Unavailable {
        consistency: Consistency,
        required: i32,
        alive: i32,
    },
    Overloaded,
    Bootstrapping,
    Truncate,
    WriteTimeout {
        consistency: Consistency,
        received: i32,
        required: i32,
        kind: String,
    },
    ReadTimeout {
        consistency: Consistency,
        received: i32,
        required: i32,
        data_present: bool,
    },
    ReadFailure {
        consistency: Consistency,
        received: i32,
        required: i32,
        failures: Failures,
        data_present: bool,
    },
    FunctionFailure {
        keyspace: String,
        function: String,
    },
    WriteFailure {
        consistency: Consistency,
        received: i32,
        required: i32,
        failures: Failures,
        kind: String,
    },
    CdcWriteFailure,
    /// The server does not know the outcome of a conditional statement.
    CasUnknown {
        consistency: Consistency,
        received: i32,
        required: i32,
    },
    Syntax,
    Unauthorized,
    Invalid,
    Config,
    AlreadyExists {
        keyspace: String,
        table: String,
    },
    Unprepared {
        id: Bytes,
    },
    /// A code of a later version of the protocol.
    Other(i32),
}

/// The replicas that failed; version 5 also says which and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failures {
    pub count: usize,
    pub reasons: Vec<(IpAddr, u16)>,
}

impl Failures {
    fn read(from: &mut Reader<'_>, version: Version) -> Result<Self, Malformed> {
        if version < Version::V5 {
            let announced = from.i32("the number of failures")?;
            let count = usize::try_from(announced)
                .map_err(|_| Malformed::Value { what: "the number of failures", value: announced.into() })?;
            return Ok(Self { count, reasons: Vec::new() });
        }
        // The shortest entry: an address of four bytes, its length, the code.
        let count = from.count("the failures", 7)?;
        let one = |from: &mut Reader<'_>| Ok((from.address("a failed replica")?, from.u16("a failure")?));
        Ok(Self { count, reasons: (0..count).map(|_| one(from)).collect::<Result<_, Malformed>>()? })
    }
}

impl Refusal {
    pub fn read(from: &mut Reader<'_>, version: Version) -> Result<Self, Malformed> {
        let number = from.i32("the code of an error")?;
        let message = from.string("the message of an error")?.to_owned();
        let code = match number {
            0x0000 => Code::Server,
            0x000a => Code::Protocol,
            0x0100 => Code::BadCredentials,
            0x1000 => {
                let consistency = consistency(from)?;
                Code::Unavailable { consistency, required: from.i32("required")?, alive: from.i32("alive")? }
            }
            0x1001 => Code::Overloaded,
            0x1002 => Code::Bootstrapping,
            0x1003 => Code::Truncate,
            0x1100 => {
                let (consistency, received, required) = replicas(from)?;
                let kind = from.string("the kind of a write")?.to_owned();
                Code::WriteTimeout { consistency, received, required, kind }
            }
            0x1200 => {
                let (consistency, received, required) = replicas(from)?;
                Code::ReadTimeout { consistency, received, required, data_present: from.u8("data present")? != 0 }
            }
            0x1300 => {
                let (consistency, received, required) = replicas(from)?;
                let failures = Failures::read(from, version)?;
                let data_present = from.u8("data present")? != 0;
                Code::ReadFailure { consistency, received, required, failures, data_present }
            }
            0x1400 => Code::FunctionFailure {
                keyspace: from.string("a keyspace")?.to_owned(),
                function: from.string("a function")?.to_owned(),
            },
            0x1500 => {
                let (consistency, received, required) = replicas(from)?;
                let failures = Failures::read(from, version)?;
                let kind = from.string("the kind of a write")?.to_owned();
                Code::WriteFailure { consistency, received, required, failures, kind }
            }
            0x1600 => Code::CdcWriteFailure,
            0x1700 => {
                let (consistency, received, required) = replicas(from)?;
                Code::CasUnknown { consistency, received, required }
            }
            0x2000 => Code::Syntax,
            0x2100 => Code::Unauthorized,
            0x2200 => Code::Invalid,
            0x2300 => Code::Config,
            0x2400 => Code::AlreadyExists {
                keyspace: from.string("a keyspace")?.to_owned(),
                table: from.string("a table")?.to_owned(),
            },
            0x2500 => Code::Unprepared { id: Bytes::copy_from_slice(from.short_bytes("the id of a statement")?) },
            other => Code::Other(other),
        };
        Ok(Self { code, message })
    }
}

impl Code {
    /// The number of the code in the protocol.
    pub fn number(&self) -> u32 {
        match self {
            Self::Server => 0x0000,
            Self::Protocol => 0x000a,
            Self::BadCredentials => 0x0100,
            Self::Unavailable { .. } => 0x1000,
            Self::Overloaded => 0x1001,
            Self::Bootstrapping => 0x1002,
            Self::Truncate => 0x1003,
            Self::WriteTimeout { .. } => 0x1100,
            Self::ReadTimeout { .. } => 0x1200,
            Self::ReadFailure { .. } => 0x1300,
            Self::FunctionFailure { .. } => 0x1400,
            Self::WriteFailure { .. } => 0x1500,
            Self::CdcWriteFailure => 0x1600,
            Self::CasUnknown { .. } => 0x1700,
            Self::Syntax => 0x2000,
            Self::Unauthorized => 0x2100,
            Self::Invalid => 0x2200,
            Self::Config => 0x2300,
            Self::AlreadyExists { .. } => 0x2400,
            Self::Unprepared { .. } => 0x2500,
            Self::Other(number) => number.cast_unsigned(),
        }
    }
}

fn consistency(from: &mut Reader<'_>) -> Result<Consistency, Malformed> {
    Consistency::of_code(from.u16("consistency")?)
}

fn replicas(from: &mut Reader<'_>) -> Result<(Consistency, i32, i32), Malformed> {
    Ok((consistency(from)?, from.i32("received")?, from.i32("required")?))
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Server => "server error",
            Self::Protocol => "protocol error",
            Self::BadCredentials => "login refused",
            Self::Unavailable { consistency, required, alive } => {
                return write!(f, "unavailable, {alive} of {required} replicas alive for {consistency:?}");
            }
            Self::Overloaded => "overloaded",
            Self::Bootstrapping => "still bootstrapping",
            Self::Truncate => "truncate failed",
            Self::WriteTimeout { consistency, received, required, kind } => {
                return write!(
                    f,
                    "write timed out, {received} of {required} replicas answered for {consistency:?} ({kind})"
                );
            }
            Self::ReadTimeout { consistency, received, required, .. } => {
                return write!(f, "read timed out, {received} of {required} replicas answered for {consistency:?}");
            }
            Self::ReadFailure { failures, .. } => return write!(f, "read failed at {} replicas", failures.count),
            Self::FunctionFailure { keyspace, function } => return write!(f, "function {keyspace}.{function} failed"),
            Self::WriteFailure { failures, .. } => return write!(f, "write failed at {} replicas", failures.count),
            Self::CdcWriteFailure => "write to change data capture failed",
            Self::CasUnknown { .. } => "outcome of a conditional statement unknown",
            Self::Syntax => "syntax error",
            Self::Unauthorized => "not authorized",
            Self::Invalid => "invalid",
            Self::Config => "invalid by configuration",
            Self::AlreadyExists { keyspace, table } => return write!(f, "{keyspace}.{table} exists already"),
            Self::Unprepared { .. } => "statement not prepared",
            Self::Other(code) => return write!(f, "error {code:#06x}"),
        };
        f.write_str(name)
    }
}
