//! Adds TLS to an open stream and negotiates the version of HTTP.

use std::sync::Arc;

use honeyflow_tls::Tls;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::config::Http;

/// Returns the secured stream, and whether both sides agreed on HTTP/2.
pub async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Tls,
    stream: S,
    name: &str,
    http: Http,
) -> Result<(TlsStream<S>, bool), String> {
    let mut config = tls.client()?;
    config.alpn_protocols = match http {
        Http::One => vec![b"http/1.1".to_vec()],
        Http::Two => vec![b"h2".to_vec()],
        Http::Agreed => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
    };
    let name = ServerName::try_from(name.to_owned()).map_err(|error| format!("{name}: {error}"))?;
    let secured = TlsConnector::from(Arc::new(config)).connect(name, stream).await;
    let stream = secured.map_err(|error| error.to_string())?;
    let two = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    Ok((stream, two))
}
