//! Encoding and decoding give back the same: every type, every version, every compression, in pieces of any size.

use bytes::BytesMut;
use honeyflow_cassandra::value::{Decimal, Duration, Varint};
use honeyflow_cassandra::wire::frame::{Inbound, Outbound};
use honeyflow_cassandra::wire::{Answer, Compression, Envelope, Field, Response, UserType, Version};
use honeyflow_cassandra::{Bind, Malformed, Rows, Type, Value};
use proptest::prelude::*;
use std::sync::Arc;
use uuid::Uuid;

use crate::speak::{self, opcode};

pub const MAX: usize = 64 << 20;

/// Every combination of version and compression.
pub const WAYS: [(Version, Compression); 5] = [
    (Version::V4, Compression::None),
    (Version::V4, Compression::Lz4),
    (Version::V4, Compression::Snappy),
    (Version::V5, Compression::None),
    (Version::V5, Compression::Lz4),
];

/// A reader in its state after the handshake.
pub fn inbound((version, compression): (Version, Compression)) -> Inbound {
    let mut inbound = Inbound::new(version, MAX);
    inbound.set_compression(compression);
    if version == Version::V5 {
        inbound.begin_segments();
    }
    inbound
}

/// Encodes messages as a server sends them.
pub fn sent((version, compression): (Version, Compression), messages: &[Vec<u8>]) -> Vec<u8> {
    if version == Version::V4 {
        return messages.iter().flat_map(|message| packed(compression, message)).collect();
    }
    let mut outbound = Outbound::plain();
    outbound.begin_segments(compression);
    messages.iter().for_each(|message| outbound.push(message));
    outbound.seal();
    outbound.raw.to_vec()
}

fn packed(compression: Compression, message: &[u8]) -> Vec<u8> {
    if compression == Compression::None {
        return message.to_vec();
    }
    let body = compression.pack(&message[9..]);
    let mut whole = message[..5].to_vec();
    whole[1] |= 1;
    whole.extend_from_slice(&(body.len() as u32).to_be_bytes());
    whole.extend_from_slice(&body);
    whole
}

pub fn received(inbound: &mut Inbound, bytes: &[u8], piece: usize) -> Result<Vec<Envelope>, Malformed> {
    let mut found = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        inbound.raw.extend_from_slice(piece);
        while let Some(envelope) = inbound.message()? {
            found.push(envelope);
        }
    }
    Ok(found)
}

pub fn rows_of(envelope: &Envelope, version: Version) -> Rows {
    match Response::read(envelope, version).unwrap().answer {
        Answer::Rows(rows) => rows,
        other => panic!("rows were sent, {} was read", other.name()),
    }
}

fn simple_type() -> impl Strategy<Value = Type> {
    prop::sample::select(vec![
        Type::Ascii,
        Type::Bigint,
        Type::Blob,
        Type::Boolean,
        Type::Counter,
        Type::Decimal,
        Type::Double,
        Type::Float,
        Type::Int,
        Type::Timestamp,
        Type::Uuid,
        Type::Text,
        Type::Varint,
        Type::Timeuuid,
        Type::Inet,
        Type::Date,
        Type::Time,
        Type::Smallint,
        Type::Tinyint,
        Type::Duration,
        Type::Vector(Box::new(Type::Float), 3),
        Type::Custom("com.example.Own".to_owned()),
    ])
}

fn any_type() -> impl Strategy<Value = Type> {
    simple_type().prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            inner.clone().prop_map(|of| Type::List(Box::new(of))),
            inner.clone().prop_map(|of| Type::Set(Box::new(of))),
            (inner.clone(), inner.clone()).prop_map(|of| Type::Map(Box::new(of))),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Type::Tuple),
            prop::collection::vec(inner, 1..4).prop_map(|kinds| {
                let fields = kinds.into_iter().enumerate();
                let fields = fields.map(|(at, kind)| Field { name: format!("f{at}").into(), kind }).collect();
                Type::User(Arc::new(UserType { keyspace: "k".to_owned(), name: "u".to_owned(), fields }))
            }),
        ]
    })
}

/// Makes a value of this type from random bytes.
fn value_of(kind: &Type, bytes: &mut dyn FnMut() -> u8) -> Value {
    let mut many = |count: usize| -> Vec<u8> { (0..count).map(|_| bytes()).collect() };
    let text = |bytes: Vec<u8>| bytes.iter().map(|byte| char::from(b'a' + byte % 26)).collect::<String>();
    match kind {
        Type::Ascii | Type::Text => Value::Text(text(many(5))),
        Type::Bigint => Value::Bigint(i64::from_be_bytes(many(8).try_into().unwrap())),
        Type::Counter => Value::Counter(i64::from_be_bytes(many(8).try_into().unwrap())),
        Type::Timestamp => Value::Timestamp(i64::from_be_bytes(many(8).try_into().unwrap())),
        Type::Time => Value::Time(i64::from_be_bytes(many(8).try_into().unwrap())),
        Type::Blob => Value::Blob(many(7)),
        Type::Boolean => Value::Boolean(many(1)[0] & 1 == 1),
        Type::Decimal => {
            let scale = i32::from_be_bytes(many(4).try_into().unwrap());
            Value::Decimal(Decimal { scale, unscaled: Varint(many(9)) })
        }
        Type::Double => Value::Double(f64::from(i32::from_be_bytes(many(4).try_into().unwrap()))),
        Type::Float => Value::Float(f32::from(i16::from_be_bytes(many(2).try_into().unwrap()))),
        Type::Int => Value::Int(i32::from_be_bytes(many(4).try_into().unwrap())),
        Type::Uuid | Type::Timeuuid => Value::Uuid(Uuid::from_bytes(many(16).try_into().unwrap())),
        Type::Varint => Value::Varint(Varint(many(11))),
        Type::Inet if many(1)[0] & 1 == 1 => Value::Inet(<[u8; 4]>::try_from(many(4)).unwrap().into()),
        Type::Inet => Value::Inet(<[u8; 16]>::try_from(many(16)).unwrap().into()),
        Type::Date => Value::Date(i32::from_be_bytes(many(4).try_into().unwrap())),
        Type::Smallint => Value::Smallint(i16::from_be_bytes(many(2).try_into().unwrap())),
        Type::Tinyint => Value::Tinyint(many(1)[0].cast_signed()),
        Type::Duration => Value::Duration(Duration {
            months: i32::from_be_bytes(many(4).try_into().unwrap()),
            days: i32::from_be_bytes(many(4).try_into().unwrap()),
            nanoseconds: i64::from_be_bytes(many(8).try_into().unwrap()),
        }),
        Type::List(of) => Value::List((0..many(1)[0] % 4).map(|_| value_of(of, bytes)).collect()),
        Type::Set(of) => Value::Set((0..many(1)[0] % 4).map(|_| value_of(of, bytes)).collect()),
        Type::Map(of) => {
            let count = many(1)[0] % 4;
            Value::Map((0..count).map(|_| (value_of(&of.0, bytes), value_of(&of.1, bytes))).collect())
        }
        Type::Tuple(kinds) => Value::Tuple(kinds.iter().map(|kind| part_of(kind, bytes)).collect()),
        Type::User(of) => Value::User(of.fields.iter().map(|f| (f.name.clone(), part_of(&f.kind, bytes))).collect()),
        Type::Vector(of, count) => Value::Vector((0..*count).map(|_| value_of(of, bytes)).collect()),
        Type::Custom(_) => Value::Custom(many(3)),
    }
}

fn part_of(kind: &Type, bytes: &mut dyn FnMut() -> u8) -> Value {
    if bytes().is_multiple_of(5) { Value::Null } else { value_of(kind, bytes) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn cq_7_rows_of_every_type_survive_every_way(
        kinds in prop::collection::vec(any_type(), 1..5),
        count in 0_usize..6,
        seed in any::<u64>(),
        way in prop::sample::select(WAYS.to_vec()),
        piece in 1_usize..400,
    ) {
        let mut random = crate::random::Random(seed);
        let mut bytes = || random.byte();
        let values: Vec<Vec<Value>> =
            (0..count).map(|_| kinds.iter().map(|kind| part_of(kind, &mut bytes)).collect()).collect();
        let cell = |(value, kind): (&Value, &Type)| {
            let mut out = Vec::new();
            (value.bind(kind, &mut out).unwrap() == honeyflow_cassandra::value::CellContent::Bytes).then_some(out)
        };
        let cells: Vec<speak::Cells> = values.iter().map(|row| row.iter().zip(&kinds).map(cell).collect()).collect();
        let names: Vec<String> = (0..kinds.len()).map(|at| format!("c{at}")).collect();
        let columns: Vec<(&str, Type)> = names.iter().map(String::as_str).zip(kinds.iter().cloned()).collect();
        let body = speak::rows(&columns, &cells, None);
        let message = speak::message(way.0, 0, 7, opcode::RESULT, &body);
        let found = received(&mut inbound(way), &sent(way, &[message.clone(), message]), piece).unwrap();
        prop_assert_eq!(found.len(), 2);
        prop_assert_eq!(found[0].stream, 7);
        let rows = rows_of(&found[1], way.0);
        let read: Vec<Vec<Value>> = rows.typed().collect::<Result<_, _>>().unwrap();
        prop_assert_eq!(read, values);
        let read_kinds: Vec<Type> = rows.columns().iter().map(|column| column.kind.clone()).collect();
        prop_assert_eq!(read_kinds, kinds);
    }
}

/// CQ-2: a message that does not fit into one segment.
#[test]
fn cq_2_a_message_over_several_segments_is_put_together() {
    let long = vec![Some((0..500_000_u32).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect::<Vec<u8>>())];
    let body = speak::rows(&[("v", Type::Blob)], std::slice::from_ref(&long), None);
    for way in [(Version::V5, Compression::None), (Version::V5, Compression::Lz4)] {
        let big = speak::message(way.0, 0, 1, opcode::RESULT, &body);
        let small = speak::message(way.0, 0, 2, opcode::READY, &[]);
        let bytes = sent(way, &[small.clone(), big, small]);
        let found = received(&mut inbound(way), &bytes, 4096).unwrap();
        let streams: Vec<i16> = found.iter().map(|envelope| envelope.stream).collect();
        assert_eq!(streams, [2, 1, 2]);
        let rows = rows_of(&found[1], way.0);
        assert_eq!(rows.first::<(&[u8],)>().unwrap().unwrap().0, long[0].as_deref().unwrap());
    }
}

#[test]
fn cq_2_a_spread_message_is_not_interrupted_nor_followed_inside_its_segment() {
    use honeyflow_cassandra::wire::segment;
    let ready = speak::message(Version::V5, 0, 1, opcode::READY, &[]);
    let mut broken = BytesMut::new();
    segment::append(&ready[..5], false, Compression::None, &mut broken);
    segment::append(&ready, true, Compression::None, &mut broken);
    let way = (Version::V5, Compression::None);
    assert!(matches!(received(&mut inbound(way), &broken, 64), Err(Malformed::Unexpected { .. })));
    let mut surplus = BytesMut::new();
    segment::append(&[&ready[..], &[0]].concat(), false, Compression::None, &mut surplus);
    assert!(matches!(received(&mut inbound(way), &surplus, 64), Err(Malformed::Surplus { .. })));
    let mut cut = BytesMut::new();
    segment::append(&ready[..7], true, Compression::None, &mut cut);
    assert!(matches!(received(&mut inbound(way), &cut, 64), Err(Malformed::Short { .. })));
}

#[test]
fn what_comes_with_an_answer_is_read_before_it() {
    let body = speak::Body::new().raw(&[9; 16]).strings(&["slow query"]).u16(1).string("k").bytes(Some(b"v"));
    let body = body.raw(&speak::rows(&[("a", Type::Int)], &[vec![None]], Some(b"next")));
    let message = speak::message(Version::V4, 0x02 | 0x04 | 0x08, 3, opcode::RESULT, &body.0);
    let way = (Version::V4, Compression::None);
    let found = received(&mut inbound(way), &message, 5).unwrap();
    let response = Response::read(&found[0], Version::V4).unwrap();
    assert_eq!(response.tracing, Some(Uuid::from_bytes([9; 16])));
    assert_eq!(response.warnings, ["slow query"]);
    let Answer::Rows(rows) = response.answer else { panic!("rows were sent") };
    assert_eq!(rows.next_page().map(|page| &page[..]), Some(&b"next"[..]));
    assert_eq!(rows.first::<(Option<i32>,)>().unwrap(), Some((None,)));
}

#[test]
fn cq_15_every_error_is_read_with_its_details() {
    use honeyflow_cassandra::wire::Code;
    let read = |version: Version, code: i32, more: speak::Body| {
        let body = speak::error(code, "why", more);
        let message = speak::message(version, 0, 0, opcode::ERROR, &body);
        let way = (version, Compression::None);
        let mut plain = Inbound::new(way.0, MAX);
        let found = received(&mut plain, &message, 1000).unwrap();
        match Response::read(&found[0], version).map(|response| response.answer) {
            Ok(Answer::Refused(refusal)) => Ok(refusal.code),
            Ok(other) => panic!("an error was sent, {} was read", other.name()),
            Err(malformed) => Err(malformed),
        }
    };
    let body = speak::Body::new;
    assert_eq!(read(Version::V4, 0x1001, body()), Ok(Code::Overloaded));
    let unavailable =
        Code::Unavailable { consistency: honeyflow_cassandra::Consistency::Quorum, required: 2, alive: 1 };
    assert_eq!(read(Version::V4, 0x1000, body().u16(4).i32(2).i32(1)), Ok(unavailable));
    let timeout = read(Version::V4, 0x1100, body().u16(6).i32(1).i32(2).string("BATCH_LOG")).unwrap();
    assert!(matches!(timeout, Code::WriteTimeout { received: 1, required: 2, kind, .. } if kind == "BATCH_LOG"));
    // With version 5 the number of conflicts follows the kind; it is not read.
    let contended = body().u16(9).i32(1).i32(2).string("CAS").u16(3);
    assert!(matches!(read(Version::V5, 0x1100, contended), Ok(Code::WriteTimeout { .. })));
    assert!(matches!(
        read(Version::V4, 0x1200, body().u16(1).i32(0).i32(1).u8(1)),
        Ok(Code::ReadTimeout { data_present: true, .. })
    ));
    let reasons = body().u16(1).i32(0).i32(1).i32(1).u8(4).raw(&[127, 0, 0, 2]).u16(5).u8(0);
    let Ok(Code::ReadFailure { failures, .. }) = read(Version::V5, 0x1300, reasons) else { panic!("a read failure") };
    assert_eq!(failures.reasons, [("127.0.0.2".parse().unwrap(), 5)]);
    let counted = body().u16(1).i32(0).i32(1).i32(2).string("SIMPLE");
    let Ok(Code::WriteFailure { failures, .. }) = read(Version::V4, 0x1500, counted) else { panic!("a write failure") };
    assert_eq!((failures.count, failures.reasons.len()), (2, 0));
    assert!(
        matches!(read(Version::V5, 0x2500, body().short_bytes(b"id")), Ok(Code::Unprepared { id }) if &id[..] == b"id")
    );
    assert_eq!(read(Version::V5, 0x7777, body()), Ok(Code::Other(0x7777)));
    assert!(read(Version::V5, 0x1300, body().u16(1).i32(0).i32(1).i32(i32::MAX)).is_err());
    assert!(read(Version::V4, 0x1000, body().u16(99).i32(2).i32(1)).is_err());
}
