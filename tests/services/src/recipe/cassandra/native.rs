//! The part of CQL that is needed to log in and to ask for the version: one message, one answer.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

const ANSWER_TIME: Duration = Duration::from_secs(5);
const ANSWER_BYTES_MAX: u32 = 1 << 20;

mod opcode {
    pub const ERROR: u8 = 0x00;
    pub const STARTUP: u8 = 0x01;
    pub const QUERY: u8 = 0x07;
    pub const AUTH_RESPONSE: u8 = 0x0f;
}

pub struct Client {
    stream: TcpStream,
}

impl Client {
    pub fn login(port: u16, user: &str, password: &str) -> Result<Self, String> {
        let mut client = Self::connect(Ipv4Addr::LOCALHOST, port)?;
        client.ask(opcode::AUTH_RESPONSE, &long_string(&format!("\0{user}\0{password}")))?;
        Ok(client)
    }

    /// Connects to a server that requires no password.
    pub fn connect(at: Ipv4Addr, port: u16) -> Result<Self, String> {
        let text = |error: std::io::Error| error.to_string();
        let stream = TcpStream::connect_timeout(&SocketAddr::from((at, port)), ANSWER_TIME);
        let mut client = Self { stream: stream.map_err(text)? };
        client.stream.set_read_timeout(Some(ANSWER_TIME)).map_err(text)?;
        client.stream.set_write_timeout(Some(ANSWER_TIME)).map_err(text)?;
        let mut options = 1_u16.to_be_bytes().to_vec();
        options.extend([string("CQL_VERSION"), string("3.0.0")].concat());
        client.ask(opcode::STARTUP, &options)?;
        Ok(client)
    }

    pub fn run(&mut self, statement: &str) -> Result<Vec<u8>, String> {
        let mut body = long_string(statement);
        // Consistency ONE, no flags.
        body.extend([0, 1, 0]);
        self.ask(opcode::QUERY, &body)
    }

    pub fn version(&mut self) -> Result<String, String> {
        let answer = self.run("SELECT release_version FROM system.local")?;
        // The answer is one row of one text: it ends with that text.
        let end = answer.iter().rposition(|byte| !(byte.is_ascii_graphic())).map_or(0, |at| at + 1);
        Ok(String::from_utf8_lossy(&answer[end..]).into_owned())
    }

    fn ask(&mut self, opcode: u8, body: &[u8]) -> Result<Vec<u8>, String> {
        let length = u32::try_from(body.len()).map_err(|error| error.to_string())?;
        let message = [&[4, 0, 0, 0, opcode][..], &length.to_be_bytes(), body].concat();
        let answer = self.stream.write_all(&message).and_then(|()| {
            let mut header = [0; 9];
            self.stream.read_exact(&mut header)?;
            let [_, _, _, _, opcode, length @ ..] = header;
            let length = u32::from_be_bytes(length).min(ANSWER_BYTES_MAX);
            let mut body = vec![0; length as usize];
            self.stream.read_exact(&mut body).map(|()| (opcode, body))
        });
        match answer.map_err(|error| error.to_string())? {
            (opcode::ERROR, body) => Err(String::from_utf8_lossy(body.get(6..).unwrap_or_default()).into_owned()),
            (_, body) => Ok(body),
        }
    }
}

fn string(text: &str) -> Vec<u8> {
    [&u16::try_from(text.len()).unwrap_or(u16::MAX).to_be_bytes()[..], text.as_bytes()].concat()
}

fn long_string(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes()[..], text.as_bytes()].concat()
}
