//! Adds TLS to an open stream.

use std::sync::Arc;

use honeyflow_tls::Tls;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::Cause;

/// Secures the stream. Without a configured name, the server's certificate must contain the address that was dialled.
pub async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Tls,
    stream: S,
    server: &str,
) -> Result<TlsStream<S>, Cause> {
    let config = tls.client().map_err(Cause::Tls)?;
    let address = server.parse().map_or_else(|_| server.to_owned(), |at: std::net::SocketAddr| at.ip().to_string());
    let name = tls.name.clone().unwrap_or(address);
    let name = ServerName::try_from(name).map_err(|error| Cause::Tls(error.to_string()))?;
    let secured = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    secured.map_err(|error| Cause::Tls(error.to_string()))
}
