//! A whole exchange that is cut after each of its bytes: handshake, login, prepare, two pages, a notice, an error.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::connection::{Connection, Password, Secret, Settings};
use honeyflow_cassandra::error::{Cause, Error};
use honeyflow_cassandra::wire::{Compression, Version};
use honeyflow_cassandra::{Options, Statement, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};

use super::{PATIENCE, limits, settings};
use crate::scripted::{Reply, Script, refuse};
use crate::speak::{self, Body, opcode};

const WAYS: [(Version, Compression); 3] =
    [(Version::V4, Compression::None), (Version::V5, Compression::None), (Version::V5, Compression::Lz4)];

fn script() -> Script {
    let script = Script::new(|received| match &received.request {
        RequestBody::Prepare(_) => {
            Reply::Answer(opcode::RESULT, speak::prepared(received.version, b"id", &[], &[], &[("v", Type::Text)]))
        }
        RequestBody::Execute(execute) => {
            let first = execute.query_parameters.paging_state.is_none();
            // Too long for one segment, so that the message takes several.
            let long = if first { "x".repeat(140_000) } else { "end".to_owned() };
            let rows = [vec![Some(long.into_bytes())]];
            let body = speak::rows(&[("v", Type::Text)], &rows, first.then_some(b"next"));
            let notice = Body::new().string("STATUS_CHANGE").string("UP").u8(4).raw(&[127, 0, 0, 2]).i32(9042).0;
            Reply::Messages(vec![(-1, opcode::EVENT, notice), (received.stream, opcode::RESULT, body)])
        }
        _ => refuse(0x2200, Body::new()),
    });
    Script { password: Some(("bee", "honey")), ..script }
}

fn login(way: (Version, Compression)) -> Settings {
    let login = Password { user: "bee".to_owned(), password: Secret::Plain("honey".to_owned()) };
    Settings { login: Some(Arc::new(login)), ..settings(way.0, way.1) }
}

/// How a stream ends.
#[derive(Clone, Copy, PartialEq, Debug)]
enum End {
    Closed,
    Reset,
}

struct CutStream(DuplexStream, End);

impl AsyncRead for CutStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.0).poll_read(cx, into);
        let over = matches!(polled, Poll::Ready(Ok(()))) && into.filled().len() == before;
        if over && self.1 == End::Reset { Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())) } else { polled }
    }
}

impl AsyncWrite for CutStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Runs the exchange over this stream.
async fn over(stream: CutStream, settings: &Settings) -> Result<(), Error> {
    let stream = Mutex::new(Some(stream));
    let dial = || {
        let stream = stream.lock().unwrap().take();
        async move { stream.ok_or_else(|| std::io::ErrorKind::ConnectionRefused.into()) }
    };
    let connection = Connection::connect_as(&"server".into(), settings, limits(), dial).await?;
    let how = Options::within(PATIENCE);
    let statement = Statement::new("SELECT v FROM t");
    let first = connection.execute(&statement, (), &how).await?.into_rows();
    let next = first.next_page().expect("there is a second page").clone();
    let second = connection.execute(&statement, (), &how.clone().page(next)).await?.into_rows();
    assert_eq!(second.first::<(&str,)>().unwrap(), Some(("end",)));
    let refused = connection.query("SELECT", &how).await.unwrap_err();
    if matches!(refused.cause, Cause::Refused(_)) { Ok(()) } else { Err(refused) }
}

/// Runs one exchange in which only `bytes` bytes from the server arrive, and returns them too.
async fn cut_after(bytes: usize, end: End, settings: &Settings) -> (Result<(), Error>, Vec<u8>) {
    let (client, mut middle) = tokio::io::duplex(1 << 20);
    let (mut far, server) = tokio::io::duplex(1 << 20);
    let server = tokio::spawn(script().serve(server));
    let carry = tokio::spawn(async move {
        let (mut left, mut came) = (bytes, Vec::new());
        let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        while left > 0 {
            tokio::select! {
                read = middle.read(&mut up) => match read {
                    Ok(0) | Err(_) => break,
                    Ok(read) => far.write_all(&up[..read]).await.unwrap(),
                },
                read = far.read(&mut down) => {
                    let read = read.unwrap().min(left);
                    left -= read;
                    came.extend_from_slice(&down[..read]);
                    if middle.write_all(&down[..read]).await.is_err() {
                        break;
                    }
                }
            }
        }
        came
    });
    let outcome = over(CutStream(client, end), settings).await;
    let came = carry.await.unwrap();
    server.abort();
    (outcome, came)
}

/// PL-165
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cq_7_an_exchange_cut_at_any_byte_ends_with_a_typed_error() {
    for way in WAYS {
        let settings = login(way);
        let (outcome, whole) = cut_after(usize::MAX, End::Closed, &settings).await;
        outcome.unwrap();
        // Inside the long message all positions are alike, except at the end of a segment: there the row of `x` stops.
        let borders: Vec<usize> = (1..whole.len()).filter(|at| whole[at - 1] == b'x' && whole[*at] != b'x').collect();
        assert!(way.0 == Version::V4 || way.1 == Compression::Lz4 || borders.len() >= 2, "{way:?}: {borders:?}");
        let near = |cut: usize| borders.iter().any(|border| border.abs_diff(cut) <= 64);
        let length = whole.len();
        let telling = |cut: &usize| *cut < 600 || *cut + 300 > length || cut.is_multiple_of(7919) || near(*cut);
        for (number, cut) in (0..length).filter(telling).enumerate() {
            // Most streams are closed; some are reset, which must have the same effect.
            let end = if number.is_multiple_of(3) { End::Reset } else { End::Closed };
            let (outcome, came) = cut_after(cut, end, &settings).await;
            assert_eq!(came.len(), cut);
            let error = outcome.expect_err("it was cut");
            assert!(error.to_string().starts_with("server "), "{error}");
            let ended = |cause: &Cause| matches!(cause, Cause::Ended(_));
            let lost = matches!(&error.cause, Cause::Lost { why, .. } if ended(why));
            assert!(ended(&error.cause) || lost, "{end:?} at {cut}: {error}");
        }
    }
}
