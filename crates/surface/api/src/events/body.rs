//! Reads a request body within its bounds. It refuses a declared length that is too large before it reads a byte,
//! counts the bytes while they arrive, and takes memory from what all bodies share, only as much as a sender has
//! already sent.

use std::sync::Arc;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, StatusCode, header},
};
use futures_util::StreamExt as _;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{answer::Refusal, codes, node::Limits};

pub(crate) struct RequestBody {
    pub bytes: Vec<u8>,
    _room: Vec<OwnedSemaphorePermit>,
}

pub(super) async fn read(
    headers: &HeaderMap,
    body: Incoming,
    limits: &Limits,
    room: &Arc<Semaphore>,
) -> Result<RequestBody, Refusal> {
    if headers.get(header::CONTENT_ENCODING).is_some_and(|encoding| encoding != "identity") {
        let message = "compressed bodies are not supported";
        return Err(
            Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, codes::refusal::COMPRESSED_BODY, message).closing()
        );
    }
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if declared.is_some_and(|length| length > limits.body_bytes_max as u64) {
        return Err(too_large(limits));
    }
    match tokio::time::timeout(limits.body_timeout, gather(body, limits, room)).await {
        Ok(read) => read,
        Err(_) => {
            let message = format!("the body did not arrive within {} s", limits.body_timeout.as_secs());
            Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, codes::refusal::BODY_TOO_SLOW, message).closing())
        }
    }
}

async fn gather(body: Incoming, limits: &Limits, room: &Arc<Semaphore>) -> Result<RequestBody, Refusal> {
    let mut read = RequestBody { bytes: Vec::new(), _room: Vec::new() };
    let mut room_bytes = 0;
    let mut pieces = Body::new(body).into_data_stream();
    while let Some(piece) = pieces.next().await {
        let piece: Bytes =
            piece.map_err(|_| Refusal::bad_request(codes::refusal::BODY_BROKEN, "the body broke off").closing())?;
        if read.bytes.len() + piece.len() > limits.body_bytes_max {
            return Err(too_large(limits));
        }
        let needed = read.bytes.len() + piece.len();
        if needed > room_bytes {
            // Doubles like a vector: few permits, and their number matches the memory that is really used.
            let taken = needed.max(room_bytes * 2).max(1 << 10).next_multiple_of(1 << 10) - room_bytes;
            let permits = u32::try_from(taken >> 10).unwrap_or(u32::MAX);
            read._room.push(room.clone().try_acquire_many_owned(permits).map_err(|_| busy())?);
            room_bytes += taken;
        }
        read.bytes.extend_from_slice(&piece);
    }
    Ok(read)
}

fn too_large(limits: &Limits) -> Refusal {
    let message = format!("the body has more than {} bytes", limits.body_bytes_max);
    Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, codes::refusal::BODY_TOO_LARGE, message)
        .hint("send fewer events at once; put large data into the database and send its key")
        .closing()
}

fn busy() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, codes::refusal::BUSY, "too many bodies are being read at once")
        .hint("nothing was stored; send it again")
        .retry_after(std::time::Duration::from_secs(1))
        .closing()
}
