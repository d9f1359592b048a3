//! The refusal of a gRPC request: status 8 in a response without messages. The time to wait is in the two forms that
//! clients read: `grpc-retry-pushback-ms` and a `RetryInfo`.

use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, header::CONTENT_TYPE};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const DETAILS: HeaderName = HeaderName::from_static("grpc-status-details-bin");
const PUSHBACK: HeaderName = HeaderName::from_static("grpc-retry-pushback-ms");

const RESOURCE_EXHAUSTED: u8 = 8;
const TEXT: &str = "rate limit exceeded";
const RETRY_INFO: &str = "type.googleapis.com/google.rpc.RetryInfo";

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

pub(crate) fn refuse(headers: &mut HeaderMap, retry: Duration) {
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(STATUS, HeaderValue::from(u16::from(RESOURCE_EXHAUSTED)));
    headers.insert(MESSAGE, HeaderValue::from_static(TEXT));
    headers.insert(PUSHBACK, HeaderValue::from(u64::try_from(retry.as_millis()).unwrap_or(u64::MAX).max(1)));
    if let Ok(details) = HeaderValue::try_from(base64(&status(retry))) {
        headers.insert(DETAILS, details);
    }
}

/// A `google.rpc.Status` with one `RetryInfo`, encoded as protobuf by hand: two messages do not need a code generator.
fn status(retry: Duration) -> Vec<u8> {
    let mut delay = Vec::new();
    number(&mut delay, 1, retry.as_secs());
    number(&mut delay, 2, u64::from(retry.subsec_nanos()));
    let mut info = Vec::new();
    bytes(&mut info, 1, &delay);
    let mut any = Vec::new();
    bytes(&mut any, 1, RETRY_INFO.as_bytes());
    bytes(&mut any, 2, &info);
    let mut status = Vec::new();
    number(&mut status, 1, u64::from(RESOURCE_EXHAUSTED));
    bytes(&mut status, 2, TEXT.as_bytes());
    bytes(&mut status, 3, &any);
    status
}

fn number(into: &mut Vec<u8>, field: u64, value: u64) {
    if value != 0 {
        varint(into, field << 3);
        varint(into, value);
    }
}

fn bytes(into: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(into, field << 3 | 2);
    varint(into, value.len() as u64);
    into.extend_from_slice(value);
}

fn varint(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// Base64 without padding, as gRPC sends it.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for digit in 0..=chunk.len() {
            text.push(char::from(DIGITS[(word >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_follows_the_standard() {
        for (plain, coded) in [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(base64(plain.as_bytes()), coded);
        }
    }

    /// HV-73
    #[test]
    fn hv_73_a_grpc_refusal_says_how_long_to_wait() {
        let mut headers = HeaderMap::new();
        refuse(&mut headers, Duration::from_millis(1_500));
        assert_eq!(headers["grpc-status"], "8");
        assert_eq!(headers["grpc-retry-pushback-ms"], "1500");
        // RetryInfo { retry_delay: { seconds: 1, nanos: 500000000 } }
        let status = status(Duration::from_millis(1_500));
        assert!(status.ends_with(&[0x0a, 0x08, 0x08, 0x01, 0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]), "{status:x?}");
        assert_eq!(status[..2], [0x08, 0x08], "code 8");
    }
}
