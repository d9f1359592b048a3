//! TLS by rustls. Files are read anew for each connection, so that certificates can be renewed while we run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::error::Cause;

#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// Whom to believe, in PEM; without it, those whom the system believes.
    pub roots: Option<PathBuf>,
    /// Our own certificate and its key, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate must bear; without it, the address we connect to.
    pub name: Option<String>,
}

impl Tls {
    pub(super) async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        server: &str,
    ) -> Result<TlsStream<S>, Cause> {
        let config = self.config().map_err(Cause::Tls)?;
        let address = server.parse().map_or_else(|_| server.to_owned(), |at: std::net::SocketAddr| at.ip().to_string());
        let name = self.name.clone().unwrap_or(address);
        let name = ServerName::try_from(name).map_err(|error| Cause::Tls(error.to_string()))?;
        TlsConnector::from(config).connect(name, stream).await.map_err(|error| Cause::Tls(error.to_string()))
    }

    fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let mut roots = RootCertStore::empty();
        match &self.roots {
            Some(path) => {
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| format!("{}: {error}", path.display()))?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err("there is no root certificate; name a file of them".to_owned());
        }
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?.with_root_certificates(roots);
        let config = match &self.certificate {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => {
                let read = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
                let own = config.with_client_auth_cert(certificates(certificate)?, read);
                own.map_err(|error| format!("{}: {error}", certificate.display()))?
            }
        };
        Ok(Arc::new(config))
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() { Err(format!("{} holds no certificate", path.display())) } else { Ok(found) }
}
