//! The part of HTTP that is needed here: one request with JSON over one connection.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use serde_json::Value;

const TIMEOUT: Duration = Duration::from_secs(60);

pub fn get(address: &str, path: &str) -> Result<Value, String> {
    request(address, "GET", path, None)
}

pub fn request(address: &str, method: &str, path: &str, body: Option<&Value>) -> Result<Value, String> {
    let failed = |error: std::io::Error| format!("{method} {path}: {error}");
    let body = body.map(Value::to_string).unwrap_or_default();
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .map_err(failed)?;
    read(&mut BufReader::new(stream)).map_err(failed).and_then(|body| {
        serde_json::from_slice(&body)
            .map_err(|error| format!("{method} {path}: {error}: {}", String::from_utf8_lossy(&body)))
    })
}

/// Reads the body, by its length if there is one: chromedriver leaves the connection open.
fn read(stream: &mut impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut length = None;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        if line.trim_end().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok();
        }
    }
    let mut body = Vec::new();
    match length {
        Some(length) => stream.take(length).read_to_end(&mut body)?,
        None => stream.read_to_end(&mut body)?,
    };
    Ok(body)
}
