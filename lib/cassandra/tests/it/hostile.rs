//! Hostile servers: no byte of theirs makes the reader panic, wait for ever, or reserve memory because of a claimed
//! number.

mod cluster;
mod exchange;

use std::sync::Arc;

use honeyflow_cassandra::wire::frame::Inbound;
use honeyflow_cassandra::wire::{Answer, Compression, Envelope, Field, Layout, Opcode, Response, UserType, Version};
use honeyflow_cassandra::{FromCell, Malformed, Type, Value, ValueMismatch};

use crate::codec::{WAYS, inbound, received, sent};
use crate::random::{Random, Seeds};
use crate::speak::{self, Body, opcode};

/// The bodies of every kind of answer.
fn corpus(version: Version) -> Vec<(u8, Vec<u8>)> {
    let nested = Type::Map(Box::new((Type::Text, Type::List(Box::new(Type::Tuple(vec![Type::Int, Type::Uuid]))))));
    let columns = [("id", Type::Int), ("name", Type::Text), ("nested", nested), ("d", Type::Duration)];
    let cells = vec![Some(vec![0, 0, 0, 7]), Some(b"honey".to_vec()), Some([0; 4].to_vec()), Some(vec![2, 4, 6])];
    let none = vec![None; 4];
    // Elements with many parts, none of which is in the bytes: reading them could create more than was sent.
    let fields = (0..60).map(|at| Field { name: format!("f{at}").into(), kind: Type::Int }).collect();
    let user = Type::User(Arc::new(UserType { keyspace: "k".to_owned(), name: "u".to_owned(), fields }));
    let wide = [("t", Type::List(Box::new(Type::Tuple(vec![Type::Int; 60])))), ("u", Type::Set(Box::new(user)))];
    let elements = |each: &[u8]| Some([&40_u32.to_be_bytes()[..], &each.repeat(40)].concat());
    let hollow = vec![elements(&[0; 4]), elements(&[0, 0, 0, 4, 255, 255, 255, 255])];
    let replicas = || Body::new().u16(4).i32(1).i32(2);
    let failures = match version {
        Version::V4 => replicas().i32(1),
        Version::V5 => replicas().i32(1).u8(4).raw(&[127, 0, 0, 1]).u16(1),
    };
    let address = Body::new().u8(4).raw(&[127, 0, 0, 1]).i32(9042);
    vec![
        (opcode::READY, vec![]),
        (opcode::AUTHENTICATE, Body::new().string("PasswordAuthenticator").0),
        (opcode::AUTH_CHALLENGE, Body::new().bytes(Some(b"more")).0),
        (opcode::AUTH_SUCCESS, Body::new().bytes(None).0),
        (opcode::SUPPORTED, Body::new().u16(1).string("COMPRESSION").strings(&["lz4", "snappy"]).0),
        (opcode::RESULT, Body::new().i32(1).0),
        (opcode::RESULT, speak::rows(&columns, &[cells.clone(), none, cells], Some(b"next page"))),
        (opcode::RESULT, speak::rows(&wide, &[hollow], None)),
        (opcode::RESULT, speak::bare_rows(2, &[vec![Some(vec![1]), None]])),
        (opcode::RESULT, Body::new().i32(3).string("keyspace").0),
        (opcode::RESULT, speak::prepared(version, b"statement", &columns[..2], &[0], &columns)),
        (opcode::RESULT, Body::new().i32(5).string("CREATED").string("TABLE").string("k").string("t").0),
        (opcode::EVENT, Body::new().string("STATUS_CHANGE").string("UP").raw(&address.0).0),
        (opcode::EVENT, Body::new().string("TOPOLOGY_CHANGE").string("NEW_NODE").raw(&address.0).0),
        (opcode::EVENT, Body::new().string("SCHEMA_CHANGE").string("DROPPED").string("KEYSPACE").string("k").0),
        (opcode::ERROR, speak::error(0x1000, "unavailable", replicas())),
        (opcode::ERROR, speak::error(0x1100, "write timeout", replicas().string("SIMPLE"))),
        (opcode::ERROR, speak::error(0x1300, "read failure", failures.clone().u8(1))),
        (opcode::ERROR, speak::error(0x1500, "write failure", failures.string("BATCH"))),
        (opcode::ERROR, speak::error(0x2400, "exists", Body::new().string("k").string("t"))),
        (opcode::ERROR, speak::error(0x2500, "unprepared", Body::new().short_bytes(b"id"))),
    ]
}

/// The number of values in a value, itself included.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::List(parts) | Value::Set(parts) | Value::Tuple(parts) | Value::Vector(parts) => {
            parts.iter().map(count).sum()
        }
        Value::Map(pairs) => pairs.iter().map(|(key, value)| count(key) + count(value)).sum(),
        Value::User(fields) => fields.iter().map(|(_, value)| count(value)).sum(),
        _ => 0,
    }
}

/// The length of a cell of any type.
struct Length(usize);

impl<'r> FromCell<'r> for Length {
    fn read(_: &Type, cell: Option<&'r [u8]>) -> Result<Self, ValueMismatch> {
        Ok(Self(cell.map_or(0, <[u8]>::len)))
    }
}

/// Reads an answer with all its rows and cells.
fn read_all(envelope: &Envelope, version: Version) -> Result<(), Malformed> {
    if let Answer::Rows(rows) = Response::read(envelope, version)?.answer {
        for row in rows.iter() {
            let row = row?;
            for at in 0..row.columns().len() {
                let value = row.at::<Value>(at);
                let bytes = row.at::<Length>(at).map_or(0, |length| length.0);
                assert!(
                    value.map_or(0, |value| count(&value)) <= 1 + bytes,
                    "more values than {bytes} bytes can contain"
                );
                let _ = row.at::<&str>(at);
                let _ = row.at::<Vec<Option<i32>>>(at);
            }
        }
    }
    Ok(())
}

/// Makes one to four changes: a byte, an extreme length, a piece cut out, doubled or inserted.
fn spoilt(random: &mut Random, mut bytes: Vec<u8>) -> Vec<u8> {
    for _ in 0..=random.below(4) {
        if bytes.is_empty() {
            break;
        }
        let at = random.below(bytes.len());
        match random.below(6) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.byte(),
            2 => bytes.truncate(at),
            3 => {
                let extreme: [i32; 7] = [-1, -2, i32::MIN, i32::MAX, 0x00ff_ffff, 0, 1 << 20];
                let number = extreme[random.below(extreme.len())].to_be_bytes();
                let room = number.len().min(bytes.len() - at);
                bytes[at..at + room].copy_from_slice(&number[..room]);
            }
            4 => {
                let put = random.bytes(9);
                let put = &put[..1 + random.below(8)];
                bytes.splice(at..at, put.iter().copied());
            }
            _ => {
                let end = at + random.below(bytes.len() - at);
                let piece = bytes[at..end].to_vec();
                bytes.splice(end..end, piece);
            }
        }
    }
    bytes
}

/// Thousands of spoilt messages of each kind, with correct headers and checksums.
#[test]
fn cq_7_spoilt_bodies_never_panic() {
    let mut wrong = 0;
    let corpora = [Version::V4, Version::V5].map(|version| (version, corpus(version)));
    for seed in Seeds::new(3000) {
        for (version, corpus) in &corpora {
            for (kind, (opcode, body)) in corpus.iter().enumerate() {
                let mut random = Random(seed.number() << 8 | kind as u64);
                let flags = if random.below(8) == 0 { random.byte() & 0x0e } else { 0 };
                let body = spoilt(&mut random, body.clone()).into();
                let opcode = honeyflow_cassandra::wire::Opcode::of_code(*opcode).unwrap();
                let envelope = Envelope { flags, stream: 0, opcode, body };
                wrong += usize::from(read_all(&envelope, *version).is_err());
            }
        }
    }
    assert!(wrong > 10_000, "too few were refused: {wrong}");
}

#[test]
fn cq_7_every_prefix_of_every_body_is_read_or_refused() {
    for version in [Version::V4, Version::V5] {
        for (opcode, body) in corpus(version) {
            let opcode = honeyflow_cassandra::wire::Opcode::of_code(opcode).unwrap();
            let envelope = |body: &[u8]| Envelope { flags: 0, stream: 0, opcode, body: body.to_vec().into() };
            read_all(&envelope(&body), version).unwrap();
            for length in 0..body.len() {
                let _ = read_all(&envelope(&body[..length]), version);
            }
        }
    }
}

/// Whole streams, spoilt on the way: a test of framing, compression and checksums.
#[test]
fn cq_7_spoilt_streams_never_panic() {
    let corpora = WAYS.map(|way| (way, corpus(way.0)));
    for seed in Seeds::new(2000) {
        for (n, (way, corpus)) in corpora.iter().enumerate() {
            let way = *way;
            let mut random = Random(seed.number() << 8 | n as u64);
            let messages: Vec<Vec<u8>> = (0..3)
                .map(|stream| {
                    let (opcode, body) = &corpus[random.below(corpus.len())];
                    let message = speak::message(way.0, 0, stream, *opcode, body);
                    // Half of them are spoilt before they are framed, so that checksums do not detect it.
                    if random.below(2) == 0 { spoilt(&mut random, message) } else { message }
                })
                .filter(|message| message.len() > 9)
                .collect();
            let bytes = sent(way, &messages);
            let bytes = if random.below(2) == 0 { spoilt(&mut random, bytes) } else { bytes };
            let mut inbound = inbound(way);
            let piece = 1 + random.below(97);
            for envelope in received(&mut inbound, &bytes, piece).unwrap_or_default() {
                let _ = read_all(&envelope, way.0);
            }
        }
    }
}

#[test]
fn cq_7_noise_never_panics() {
    for seed in Seeds::new(2000) {
        for (n, way) in WAYS.into_iter().enumerate() {
            let mut random = Random(seed.number() << 8 | n as u64);
            let length = random.below(300);
            let mut noise = random.bytes(length);
            if let Some(first) = noise.first_mut().filter(|_| seed.number().is_multiple_of(2)) {
                *first = 0x80 | way.0.number();
            }
            let mut plain = Inbound::new(way.0, 1 << 20);
            plain.set_compression(way.1);
            for mut inbound in [plain, inbound(way)] {
                for envelope in received(&mut inbound, &noise, 50).unwrap_or_default() {
                    let _ = read_all(&envelope, way.0);
                }
            }
        }
    }
}

#[test]
fn cq_7_a_frame_above_the_limit_is_refused_by_its_header_alone() {
    let mut inbound = Inbound::new(Version::V4, 1000);
    let header = speak::message(Version::V4, 0, 0, opcode::RESULT, &[0; 1001]);
    inbound.raw.extend_from_slice(&header[..9]);
    assert_eq!(inbound.message(), Err(Malformed::Large { what: "a body", bytes: 1001, max: 1000 }));
    let mut negative = Inbound::new(Version::V4, 1000);
    negative.raw.extend_from_slice(&[0x84, 0, 0, 0, 8, 0x80, 0, 0, 0]);
    assert!(matches!(negative.message(), Err(Malformed::Value { .. })));
    // In segments, as soon as the header has arrived.
    let way = (Version::V5, Compression::None);
    let mut small = Inbound::new(way.0, 1000);
    small.begin_segments();
    let message = speak::message(Version::V5, 0, 0, opcode::RESULT, &vec![0; 200_000]);
    let bytes = sent(way, &[message]);
    assert!(matches!(received(&mut small, &bytes[..140_000], 4096), Err(Malformed::Large { .. })));
}

#[test]
fn cq_7_rows_without_columns_are_refused() {
    let body = Body::new().i32(2).i32(0).i32(0).i32(i32::MAX).0;
    let opcode = honeyflow_cassandra::wire::Opcode::Result;
    let envelope = Envelope { flags: 0, stream: 0, opcode, body: body.into() };
    assert!(matches!(Response::read(&envelope, Version::V4), Err(Malformed::Value { .. })));
}

/// A few bytes claim a gigabyte, in a process whose memory is limited: it would end if it reserved that much.
#[test]
fn cq_7_memory_follows_what_arrived_not_what_is_claimed() {
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new("sh")
        .args(["-c", "ulimit -v 600000; exec \"$0\" --exact hostile::claims --test-threads 1 --nocapture"])
        .arg(program)
        .env("MAKE_CLAIMS", "1")
        .output()
        .unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && printed.contains("CLAIMS WERE MADE"), "{printed}");
}

/// The child process of the test above; without its environment variable it does nothing.
#[test]
fn claims() {
    if std::env::var_os("MAKE_CLAIMS").is_none() {
        return;
    }
    const GIGABYTE: i32 = 1 << 30;
    for version in [Version::V4, Version::V5] {
        for (opcode, body) in corpus(version) {
            let opcode = honeyflow_cassandra::wire::Opcode::of_code(opcode).unwrap();
            for at in 0..body.len() {
                for claim in [GIGABYTE, i32::MAX, 0x2000_0000] {
                    for width in [2, 4] {
                        let mut body = body.clone();
                        let claim = &claim.to_be_bytes()[..width.min(body.len() - at)];
                        body[at..at + claim.len()].copy_from_slice(claim);
                        let _ = read_all(&Envelope { flags: 0, stream: 0, opcode, body: body.into() }, version);
                    }
                }
            }
        }
    }
    for compression in [Compression::Lz4, Compression::Snappy] {
        let lz4 = [&GIGABYTE.to_be_bytes()[..], &[0x0f, 0, 0, 0]].concat();
        let snappy = [0x80, 0x80, 0x80, 0x80, 0x04, 0, 0];
        for packed in [&lz4[..], &snappy[..]] {
            let mut inbound = Inbound::new(Version::V4, usize::MAX);
            inbound.set_compression(compression);
            let message = speak::message(Version::V4, 1, 0, opcode::RESULT, packed);
            assert!(received(&mut inbound, &message, 100).is_err());
        }
    }
    // The type has many parts, and each of many elements contains none of them.
    let wide = [("t", Type::List(Box::new(Type::Tuple(vec![Type::Int; 30_000]))))];
    for each in [&[0; 4][..], &[0, 0, 0, 4, 255, 255, 255, 255]] {
        let cell = [&100_000_u32.to_be_bytes()[..], &each.repeat(100_000)].concat();
        let body = speak::rows(&wide, &[vec![Some(cell)]], None).into();
        let envelope = Envelope { flags: 0, stream: 0, opcode: Opcode::Result, body };
        read_all(&envelope, Version::V4).unwrap();
    }
    // A column takes four bytes on the wire, but twenty times as much in memory.
    let columns = Body::new().i32(2).i32(1).i32(5_000_000).string("k").string("t").raw(&[0, 0, 0, 9].repeat(5_000_000));
    let envelope = Envelope { flags: 0, stream: 0, opcode: Opcode::Result, body: columns.i32(0).0.into() };
    assert!(matches!(read_all(&envelope, Version::V4), Err(Malformed::Value { .. })));
    // A header announces a gigabyte, but only a few bytes follow.
    let mut inbound = Inbound::new(Version::V4, usize::MAX);
    let mut header = speak::message(Version::V4, 0, 0, opcode::RESULT, &[]);
    header[5..9].copy_from_slice(&GIGABYTE.to_be_bytes());
    assert_eq!(received(&mut inbound, &[&header[..], &[0; 5000]].concat(), 100), Ok(vec![]));
    println!("CLAIMS WERE MADE");
}

/// Columns that were read before are recognised when they come again, and never confused with others.
#[test]
fn cq_10_known_columns_are_read_like_all_others() {
    let columns = [("id", Type::Int), ("names", Type::List(Box::new(Type::Text)))];
    let read = |body: &[u8], known: Option<&Layout>| {
        let body = body.to_vec().into();
        Response::read_as(&Envelope { flags: 0, stream: 0, opcode: Opcode::Result, body }, Version::V4, known)
    };
    let prepared = read(&speak::prepared(Version::V4, b"id", &columns[..1], &[0], &columns), None).unwrap();
    let Answer::Prepared(prepared) = prepared.answer else { panic!("{prepared:?}") };
    let row = vec![Some(vec![0, 0, 0, 7]), None];
    let body = speak::rows(&columns, &[row], Some(b"page"));
    let Answer::Rows(rows) = read(&body, Some(&prepared.result)).unwrap().answer else { panic!("no rows") };
    assert!(Arc::ptr_eq(rows.columns(), &prepared.result.columns), "it was read again");
    for at in 0..body.len() {
        for byte in [0, 1, 2, body[at] ^ 1, 0xff] {
            let mut changed = body.clone();
            changed[at] = byte;
            let (known, unknown) = (read(&changed, Some(&prepared.result)), read(&changed, None));
            assert_eq!(format!("{known:?}"), format!("{unknown:?}"), "{byte} at {at}");
        }
        let (known, unknown) = (read(&body[..at], Some(&prepared.result)), read(&body[..at], None));
        assert_eq!(format!("{known:?}"), format!("{unknown:?}"), "cut at {at}");
    }
}
