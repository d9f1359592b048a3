//! Comparison with another implementation of the protocol: each side reads what the other writes, and checksums agree.

use cassandra_protocol as peer;
use honeyflow_cassandra::token::Token;
use honeyflow_cassandra::value::bind_all;
use honeyflow_cassandra::wire::frame::Outbound;
use honeyflow_cassandra::wire::request::BatchEntry;
use honeyflow_cassandra::wire::{
    Batch, BatchKind, Column, Compression, Consistency, Parameters, Request, Serial, Topic, Version, crc,
};
use honeyflow_cassandra::{Type, value::Unset};
use peer::frame::frame_decoder::{FrameDecoder, Lz4FrameDecoder, UncompressedFrameDecoder};
use peer::frame::frame_encoder::{FrameEncoder, Lz4FrameEncoder, UncompressedFrameEncoder};
use peer::frame::message_batch::BatchQuerySubj;
use peer::frame::message_request::RequestBody;
use peer::query::QueryValues;
use peer::types::value::Value as PeerValue;

use crate::codec::{inbound, received};
use crate::random::Random;
use crate::speak::{self, opcode};

#[test]
fn cq_4_checksums_agree() {
    let mut random = Random(1);
    for length in 0..200 {
        let bytes = random.bytes(length);
        assert_eq!(crc::crc24(&bytes), peer::crc::crc24(&bytes).cast_unsigned());
        assert_eq!(crc::crc32(&bytes), peer::crc::crc32(&bytes));
    }
}

#[test]
fn cq_11_tokens_agree() {
    let mut random = Random(2);
    for length in 0..500 {
        let key = random.bytes(length % 67);
        assert_eq!(Token::of_key(&key).0, peer::token::Murmur3Token::generate(&key).value);
    }
}

#[test]
fn cq_2_segments_of_the_peer_are_read() {
    let messages: Vec<Vec<u8>> = (0..5)
        .map(|n| speak::message(Version::V5, 0, n, opcode::RESULT, &speak::rows(&[("a", Type::Int)], &[], None)))
        .collect();
    let encoders: [(Compression, Box<dyn FrameEncoder>); 2] = [
        (Compression::None, Box::new(UncompressedFrameEncoder::default())),
        (Compression::Lz4, Box::new(Lz4FrameEncoder::default())),
    ];
    for (compression, mut encoder) in encoders {
        let mut bytes = Vec::new();
        encoder.reset();
        messages.iter().for_each(|message| encoder.add_envelope(message.clone()));
        bytes.extend_from_slice(encoder.finalize_self_contained());
        let long = speak::message(Version::V5, 0, 9, opcode::RESULT, &Random(3).bytes(300_000));
        let mut rest = &long[..];
        while !rest.is_empty() {
            encoder.reset();
            let (taken, segment) = encoder.finalize_non_self_contained(rest);
            bytes.extend_from_slice(segment);
            rest = &rest[taken..];
        }
        let found = received(&mut inbound((Version::V5, compression)), &bytes, 1000).unwrap();
        let streams: Vec<i16> = found.iter().map(|envelope| envelope.stream).collect();
        assert_eq!(streams, [0, 1, 2, 3, 4, 9], "{compression:?}");
        assert_eq!(found[5].body, long[9..]);
    }
}

/// Encodes a request, in segments or packed, and returns it as the peer reads it.
fn as_peer_reads(request: &Request<'_>, version: Version, compression: Compression) -> RequestBody {
    let mut outgoing = request.encode(version, compression, false).unwrap();
    let peer_compression = match compression {
        Compression::None => peer::compression::Compression::None,
        Compression::Lz4 => peer::compression::Compression::Lz4,
        Compression::Snappy => peer::compression::Compression::Snappy,
    };
    let envelope = if version == Version::V4 {
        peer::frame::Envelope::from_buffer(outgoing.on_stream(17), peer_compression).unwrap().envelope
    } else {
        let mut outbound = Outbound::plain();
        outbound.begin_segments(compression);
        outbound.push(outgoing.on_stream(17));
        outbound.seal();
        let mut bytes = outbound.raw.to_vec();
        let mut decoder: Box<dyn FrameDecoder> = match compression {
            Compression::None => Box::new(UncompressedFrameDecoder::default()),
            _ => Box::new(Lz4FrameDecoder::default()),
        };
        decoder.consume(&mut bytes, peer_compression).unwrap().remove(0)
    };
    assert_eq!(envelope.stream_id, 17);
    envelope.request_body().unwrap()
}

fn columns() -> Vec<Column> {
    let column =
        |name: &str, kind: Type| Column { keyspace: "k".into(), table: "t".into(), name: name.to_owned(), kind };
    vec![column("a", Type::Int), column("b", Type::Text), column("c", Type::Blob), column("d", Type::Int)]
}

/// CQ-14: the options of a request are sent unchanged.
#[test]
fn cq_14_requests_are_read_by_the_peer_as_they_were_meant() {
    let long = vec![b'x'; 5000];
    let bound = bind_all(&(7_i32, "text", &long[..], Unset), &columns()).unwrap();
    let values = QueryValues::SimpleValues(vec![
        PeerValue::Some(vec![0, 0, 0, 7]),
        PeerValue::Some(b"text".to_vec()),
        PeerValue::Some(long.clone()),
        PeerValue::NotSet,
    ]);
    for (version, compression) in crate::codec::WAYS {
        let in_v5 = |text: &str| (version == Version::V5).then(|| text.to_owned());
        let how = Parameters {
            consistency: Consistency::LocalOne,
            serial: Some(Serial::LocalSerial),
            values: Some(&bound),
            skip_metadata: true,
            page_size: Some(100),
            page: Some(b"page"),
            timestamp: Some(-5),
            keyspace: Some("shop"),
        };
        let query = Request::Query { text: "SELECT * FROM t", how: how.clone() };
        let RequestBody::Query(query) = as_peer_reads(&query, version, compression) else { panic!("a query") };
        assert_eq!(query.query, "SELECT * FROM t");
        let params = query.query_params;
        assert_eq!(i16::from(params.consistency), 10);
        assert_eq!(params.serial_consistency.map(i16::from), Some(9));
        assert_eq!(params.values.as_ref(), Some(&values));
        assert_eq!((params.page_size, params.timestamp), (Some(100), Some(-5)));
        assert_eq!(params.paging_state.and_then(peer::types::CBytes::into_bytes), Some(b"page".to_vec()));
        assert_eq!(params.keyspace, in_v5("shop"));

        let plain = Parameters { values: Some(&bound), ..Parameters::default() };
        let execute = Request::Execute { id: b"id", result_id: Some(b"columns"), how: plain };
        let RequestBody::Execute(execute) = as_peer_reads(&execute, version, compression) else { panic!("an execute") };
        assert_eq!(execute.id.into_bytes(), Some(b"id".to_vec()));
        let result_id = execute.result_metadata_id.and_then(peer::types::CBytesShort::into_bytes);
        assert_eq!(result_id, in_v5("columns").map(String::into_bytes));
        assert_eq!(execute.query_parameters.values.as_ref(), Some(&values));
        assert_eq!(execute.query_parameters.timestamp, None);

        let RequestBody::Prepare(prepare) =
            as_peer_reads(&Request::Prepare { text: "SELECT 1", keyspace: Some("shop") }, version, compression)
        else {
            panic!("a prepare")
        };
        assert_eq!((prepare.query.as_str(), prepare.keyspace), ("SELECT 1", in_v5("shop")));

        let none = Default::default();
        let statements = [(BatchEntry::Prepared(b"id"), &bound), (BatchEntry::Text("DELETE"), &none)];
        let batch = Batch {
            kind: BatchKind::Unlogged,
            statements: &statements,
            consistency: Consistency::Quorum,
            serial: None,
            timestamp: Some(77),
            keyspace: None,
        };
        let RequestBody::Batch(batch) = as_peer_reads(&Request::Batch(batch), version, compression) else {
            panic!("a batch")
        };
        assert_eq!(u8::from(batch.batch_type), 1);
        assert_eq!((batch.timestamp, batch.serial_consistency, batch.keyspace), (Some(77), None, None));
        assert!(
            matches!(&batch.queries[0].subject, BatchQuerySubj::PreparedId(id) if id.clone().into_bytes() == Some(b"id".to_vec()))
        );
        assert_eq!(batch.queries[0].values, values);
        assert!(matches!(&batch.queries[1].subject, BatchQuerySubj::QueryString(text) if text == "DELETE"));

        let startup = Request::Startup(&[("DRIVER_NAME", "x"), ("THROW_ON_OVERLOAD", "1")]);
        let RequestBody::Startup(startup) = as_peer_reads(&startup, version, Compression::None) else {
            panic!("a start")
        };
        let option = |name: &str| startup.map.get(name).map(String::as_str);
        assert_eq!((option("CQL_VERSION"), option("THROW_ON_OVERLOAD")), (Some("3.0.0"), Some("1")));

        let RequestBody::Register(register) = as_peer_reads(&Request::Register(&Topic::ALL), version, compression)
        else {
            panic!("a register")
        };
        assert_eq!(register.events.len(), 3);
    }
}

#[test]
fn a_value_too_long_for_its_length_field_is_refused() {
    let long = "x".repeat(65_536);
    let keyspace = Request::Execute { id: long.as_bytes(), result_id: None, how: Parameters::default() };
    let error = keyspace.encode(Version::V4, Compression::None, false).unwrap_err();
    assert_eq!(error.to_string(), "the id of a statement has length 65536, but the protocol allows at most 65535");
}
