//! Consistency levels: how many replicas must acknowledge a request.

use super::Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u16)]
pub enum Consistency {
    Any = 0,
    One = 1,
    Two = 2,
    Three = 3,
    Quorum = 4,
    All = 5,
    #[default]
    LocalQuorum = 6,
    EachQuorum = 7,
    /// Only in errors about conditional statements.
    Serial = 8,
    LocalSerial = 9,
    LocalOne = 10,
}

impl Consistency {
    const ALL: [Self; 11] = [
        Self::Any,
        Self::One,
        Self::Two,
        Self::Three,
        Self::Quorum,
        Self::All,
        Self::LocalQuorum,
        Self::EachQuorum,
        Self::Serial,
        Self::LocalSerial,
        Self::LocalOne,
    ];

    pub fn code(self) -> u16 {
        self as u16
    }

    pub fn of_code(code: u16) -> Result<Self, Malformed> {
        let known = Self::ALL.get(usize::from(code)).copied();
        known.ok_or(Malformed::Value { what: "consistency", value: code.into() })
    }
}

/// The consistency level of the Paxos round of a conditional statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serial {
    Serial,
    LocalSerial,
}

impl Serial {
    pub fn code(self) -> u16 {
        match self {
            Self::Serial => Consistency::Serial.code(),
            Self::LocalSerial => Consistency::LocalSerial.code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_go_both_ways() {
        for one in Consistency::ALL {
            assert_eq!(Consistency::of_code(one.code()), Ok(one));
        }
        assert!(Consistency::of_code(11).is_err());
        assert_eq!((Serial::Serial.code(), Serial::LocalSerial.code()), (8, 9));
    }
}
