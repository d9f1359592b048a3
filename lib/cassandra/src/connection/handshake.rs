//! The handshake on an open stream, before the first request: OPTIONS, STARTUP, login, keyspace, one after the other.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::{Instant, timeout_at};

use super::settings::Settings;
use crate::error::Cause;
use crate::wire::frame::{Inbound, Outbound};
use crate::wire::{Answer, Code, Compression, Parameters, Request, Response, Version};

/// The stream after the handshake, for the transport.
pub struct ReadyStream<S> {
    pub version: Version,
    pub stream: S,
    pub inbound: Inbound,
    pub outbound: Outbound,
    pub compression: Compression,
}

pub struct Handshake<'s, S> {
    stream: S,
    version: Version,
    settings: &'s Settings,
    inbound: Inbound,
    outbound: Outbound,
    compression: Compression,
    by: Instant,
    within: Duration,
}

/// The largest number of rounds of a login; the mechanism decides how many it needs.
const LOGIN_ROUNDS_MAX: usize = 16;
const DRIVER: &str = env!("CARGO_PKG_NAME");
const DRIVER_VERSION: &str = env!("CARGO_PKG_VERSION");

impl<'s, S: AsyncRead + AsyncWrite + Unpin> Handshake<'s, S> {
    pub fn new(stream: S, version: Version, settings: &'s Settings, by: Instant, within: Duration) -> Self {
        Self {
            stream,
            version,
            settings,
            inbound: Inbound::new(version, settings.frame_bytes_max),
            outbound: Outbound::plain(),
            compression: Compression::None,
            by,
            within,
        }
    }

    pub async fn run(mut self) -> Result<ReadyStream<S>, Cause> {
        let offered = match self.ask("OPTIONS", &Request::Options).await? {
            Answer::Supported(options) => options.get("COMPRESSION").cloned().unwrap_or_default(),
            other => return Err(self.refused("OPTIONS", other)),
        };
        let compression = choose(self.settings.compression, &offered, self.version);
        let mut options = vec![("DRIVER_NAME", DRIVER), ("DRIVER_VERSION", DRIVER_VERSION), ("THROW_ON_OVERLOAD", "1")];
        options.extend(compression.name().map(|name| ("COMPRESSION", name)));
        // With version 4, the answer to STARTUP may already be packed.
        self.inbound.set_compression(compression);
        let answer = self.ask("STARTUP", &Request::Startup(&options)).await?;
        let refused = matches!(answer, Answer::Refused(_));
        if !refused {
            // With version 5, this answer was the last one outside of segments.
            self.agree(compression);
        }
        match answer {
            Answer::Ready => {}
            Answer::Authenticate(authenticator) => self.login(&authenticator).await?,
            other => return Err(self.refused("STARTUP", other)),
        }
        if let Some(keyspace) = &self.settings.keyspace {
            let text = format!("USE \"{}\"", keyspace.replace('"', "\"\""));
            let how = Parameters::default();
            match self.ask("USE", &Request::Query { text: &text, how }).await? {
                Answer::Keyspace(_) => {}
                other => return Err(self.refused("USE", other)),
            }
        }
        Ok(ReadyStream {
            version: self.version,
            stream: self.stream,
            inbound: self.inbound,
            outbound: self.outbound,
            compression,
        })
    }

    fn agree(&mut self, compression: Compression) {
        self.compression = compression;
        if self.version >= Version::V5 {
            self.inbound.begin_segments();
            self.outbound.begin_segments(compression);
        }
    }

    async fn login(&mut self, authenticator: &str) -> Result<(), Cause> {
        let login = self.settings.login.as_ref();
        let login =
            login.ok_or_else(|| Cause::Login(format!("it requires one ({authenticator}), but none is configured")))?;
        let mut dialogue = login.begin(authenticator).map_err(Cause::Login)?;
        let mut token = dialogue.reply(None).map_err(Cause::Login)?;
        for _ in 0..LOGIN_ROUNDS_MAX {
            match self.ask("AUTH_RESPONSE", &Request::AuthResponse(&token)).await? {
                Answer::AuthSuccess => return Ok(()),
                Answer::AuthChallenge(challenge) => {
                    token = dialogue.reply(Some(challenge.as_deref().unwrap_or_default())).map_err(Cause::Login)?;
                }
                other => return Err(self.refused("AUTH_RESPONSE", other)),
            }
        }
        Err(Cause::Login(format!("it did not end after {LOGIN_ROUNDS_MAX} challenges")))
    }

    fn refused(&self, asked: &'static str, answer: Answer) -> Cause {
        match answer {
            Answer::Refused(refusal) => match refusal.code {
                Code::Protocol if asked == "OPTIONS" || asked == "STARTUP" => {
                    Cause::Version { asked: self.version, spoken: self.version.number() }
                }
                Code::BadCredentials => Cause::Login(refusal.message),
                _ => Cause::Refused(refusal),
            },
            other => Cause::Unexpected { asked, got: other.name() },
        }
    }

    async fn ask(&mut self, asked: &'static str, request: &Request<'_>) -> Result<Answer, Cause> {
        let (by, within) = (self.by, self.within);
        let answered = timeout_at(by, self.exchange(request)).await;
        answered.map_err(|_| Cause::Silent { asked, within })?
    }

    async fn exchange(&mut self, request: &Request<'_>) -> Result<Answer, Cause> {
        let mut message = request.encode(self.version, self.compression, false)?;
        self.outbound.push(message.on_stream(0));
        self.outbound.seal();
        self.stream.write_all_buf(&mut self.outbound.raw).await.map_err(Cause::broken)?;
        self.stream.flush().await.map_err(Cause::broken)?;
        loop {
            // A server that does not know the requested version answers in its own.
            if let Some(spoken) = self.inbound.peek_version().filter(|spoken| *spoken != self.version.number()) {
                return Err(Cause::Version { asked: self.version, spoken });
            }
            if let Some(envelope) = self.inbound.message()? {
                if envelope.stream != 0 {
                    return Err(Cause::Stranger(envelope.stream));
                }
                return Ok(Response::read(&envelope, self.version)?.answer);
            }
            self.inbound.raw.reserve(4096);
            if self.stream.read_buf(&mut self.inbound.raw).await.map_err(Cause::broken)? == 0 {
                return Err(Cause::broken(std::io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }
}

/// Returns the requested compression, if the server supports it and the version allows it; with version 5, LZ4 instead
/// of Snappy.
fn choose(asked: Compression, offered: &[String], version: Version) -> Compression {
    let asked = match asked {
        Compression::Snappy if version >= Version::V5 => Compression::Lz4,
        other => other,
    };
    let has = |name: &str| offered.iter().any(|offer| offer.eq_ignore_ascii_case(name));
    if asked.name().is_some_and(has) { asked } else { Compression::None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_4_compression_is_what_both_sides_and_the_version_have() {
        let both = ["lz4".to_owned(), "snappy".to_owned()];
        for (asked, version, offered, chosen) in [
            (Compression::Lz4, Version::V4, &both[..], Compression::Lz4),
            (Compression::Snappy, Version::V4, &both, Compression::Snappy),
            (Compression::Snappy, Version::V5, &both, Compression::Lz4),
            (Compression::Snappy, Version::V5, &both[1..], Compression::None),
            (Compression::Lz4, Version::V5, &both[1..], Compression::None),
            (Compression::None, Version::V4, &both, Compression::None),
        ] {
            assert_eq!(choose(asked, offered, version), chosen, "{asked:?} {version} {offered:?}");
        }
    }
}
