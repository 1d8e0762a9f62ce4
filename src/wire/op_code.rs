//! The kinds of messages.

use std::fmt;

/// The kind of a message.
///
/// Made from its number with `From<i32>`, which never puts a named kind's number into [`OpCode::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpCode {
    /// `OP_REPLY`, 1: the reply to `OP_QUERY`.
    Reply,
    /// `OP_QUERY`, 2004: legacy, still used for the first `hello`.
    Query,
    /// `OP_COMPRESSED`, 2012: another message, compressed.
    Compressed,
    /// `OP_MSG`, 2013: every other request and reply.
    Msg,
    /// Any other op code. mongod closes the connection.
    Other(i32),
}

impl From<i32> for OpCode {
    fn from(number: i32) -> Self {
        match number {
            1 => Self::Reply,
            2004 => Self::Query,
            2012 => Self::Compressed,
            2013 => Self::Msg,
            other => Self::Other(other),
        }
    }
}

impl From<OpCode> for i32 {
    fn from(op_code: OpCode) -> Self {
        match op_code {
            OpCode::Reply => 1,
            OpCode::Query => 2004,
            OpCode::Compressed => 2012,
            OpCode::Msg => 2013,
            OpCode::Other(number) => number,
        }
    }
}

impl fmt::Display for OpCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply => f.write_str("OP_REPLY"),
            Self::Query => f.write_str("OP_QUERY"),
            Self::Compressed => f.write_str("OP_COMPRESSED"),
            Self::Msg => f.write_str("OP_MSG"),
            Self::Other(number) => write!(f, "op code {number}"),
        }
    }
}
