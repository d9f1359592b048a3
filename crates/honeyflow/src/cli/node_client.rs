//! A small HTTP client for the node that runs on this data folder. Commands use it for state that only the node's
//! memory holds and no table does.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use honeyflow_runtime::Failure;
use serde_json::Value;

use crate::{codes, config::Config, node::data};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a GET request to the running node. Returns none if no node runs on this data folder.
pub fn get(config: &Config, path: &str) -> Result<Option<Value>, Failure> {
    send(config, TIMEOUT, |address| format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Sends a command to the running node as a POST request, and waits for the answer at most `within`.
pub fn post(config: &Config, path: &str, command: &Value, within: Duration) -> Result<Option<Value>, Failure> {
    let body = command.to_string();
    send(config, within, |address| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    })
}

fn send(config: &Config, within: Duration, request: impl Fn(&str) -> String) -> Result<Option<Value>, Failure> {
    if !data::is_in_use(&config.node.data) {
        return Ok(None);
    }
    let Some(address) = data::running(&config.node.data).and_then(|running| running.address) else {
        return Ok(None);
    };
    let failed = |error: std::io::Error| {
        Failure::retry(codes::NO_ANSWER, format!("the node at {address} does not answer: {error}"))
    };
    let mut stream = TcpStream::connect(&address).map_err(failed)?;
    stream.set_read_timeout(Some(within)).map_err(failed)?;
    stream.write_all(request(&address).as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).map_err(failed)?;
    let odd = || Failure::retry(codes::ODD_ANSWER, format!("the node at {address} sent an answer that is not JSON"));
    let answer = String::from_utf8(answer).map_err(|_| odd())?;
    let (_, body) = answer.split_once("\r\n\r\n").ok_or_else(odd)?;
    let value: Value = serde_json::from_str(body).map_err(|_| odd())?;
    match value.pointer("/error/message").and_then(Value::as_str) {
        Some(message) => Err(Failure::reject(codes::REFUSED, message.to_owned())),
        None => Ok(Some(value)),
    }
}

/// Percent-encodes a value for the query of a URL.
pub fn encode(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
