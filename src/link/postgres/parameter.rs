//! A parameter of a statement, with its type: a text that is not prepared tells none. (pure)

use tokio_postgres::types::{ToSql, Type};

#[derive(Debug)]
pub(super) enum Parameter {
    Text(String),
    Int4(i32),
    Int8(i64),
    Data(Vec<u8>),
    Bool(bool),
    Texts(Vec<String>),
    Bytes(Vec<Vec<u8>>),
    Int4s(Vec<i32>),
    Int8s(Vec<i64>),
}

impl Parameter {
    pub(super) fn typed(&self) -> (&(dyn ToSql + Sync), Type) {
        match self {
            Self::Text(text) => (text, Type::TEXT),
            Self::Int4(number) => (number, Type::INT4),
            Self::Int8(number) => (number, Type::INT8),
            Self::Data(bytes) => (bytes, Type::BYTEA),
            Self::Bool(is_so) => (is_so, Type::BOOL),
            Self::Texts(texts) => (texts, Type::TEXT_ARRAY),
            Self::Bytes(bytes) => (bytes, Type::BYTEA_ARRAY),
            Self::Int4s(numbers) => (numbers, Type::INT4_ARRAY),
            Self::Int8s(numbers) => (numbers, Type::INT8_ARRAY),
        }
    }
}
