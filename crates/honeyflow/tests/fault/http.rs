//! A minimal HTTP client for tests: one request per connection.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(60);

pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

pub fn get(address: &str, path: &str) -> Result<Answer, String> {
    send(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Sends a POST request. `headers` are whole lines; the body may be shorter than they declare.
pub fn post(address: &str, path: &str, headers: &[String], body: &str) -> Result<Answer, String> {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    let head = format!("POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    send(address, &(head + body))
}

fn send(address: &str, request: &str) -> Result<Answer, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| format!("cannot connect: {error}"))?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
    // The server may answer and close the connection before the whole request is sent.
    let sent = stream.write_all(request.as_bytes());
    let mut text = Vec::new();
    let read = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    parse(&text).ok_or_else(|| format!("sent: {sent:?}, read: {read:?}: {text}"))
}

fn parse(text: &str) -> Option<Answer> {
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { body.split_once("\r\n")?.1.rsplit_once("\r\n0\r\n")?.0 } else { body };
    Some(Answer { status, body: body.to_owned() })
}
