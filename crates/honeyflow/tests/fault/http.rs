//! The little of HTTP that a test needs: one request over one connection.

use std::{
    io::{Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

pub struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

pub fn get(address: &str, path: &str) -> Option<Answer> {
    let mut stream = connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    read(&mut stream)
}

/// `headers` are whole lines; the body is sent as it is, which may be less than they declare.
pub fn post(address: &str, path: &str, headers: &[String], body: &str) -> Option<Answer> {
    let mut stream = connect(address)?;
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    write!(stream, "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n{body}").ok()?;
    read(&mut stream)
}

fn connect(address: &str) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    Some(stream)
}

fn read(stream: &mut TcpStream) -> Option<Answer> {
    let mut text = Vec::new();
    // A connection that is reset after the answer has given it all the same.
    let _ = stream.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { body.split_once("\r\n")?.1.rsplit_once("\r\n0\r\n")?.0 } else { body };
    Some(Answer { status, body: body.to_owned() })
}
