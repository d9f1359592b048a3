//! TLS by rustls. Files are read anew for each connection, so that certificates can be renewed while we run.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::config::Http;

#[derive(Clone, Debug, Default)]
pub struct Tls {
    /// Whom to believe, in PEM; without it, those whom the system believes.
    pub roots: Option<PathBuf>,
    /// Our own certificate and its key, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name that every certificate must bear; without it, the name that a server publishes, or else its address.
    pub name: Option<String>,
}

impl Tls {
    /// The stream, and whether both sides agreed on HTTP/2.
    pub async fn secure<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
        name: &str,
        http: Http,
    ) -> Result<(TlsStream<S>, bool), String> {
        let mut config = self.config()?;
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

    fn config(&self) -> Result<ClientConfig, String> {
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
        match &self.certificate {
            None => Ok(config.with_no_client_auth()),
            Some((certificate, key)) => {
                let read = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
                let own = config.with_client_auth_cert(certificates(certificate)?, read);
                own.map_err(|error| format!("{}: {error}", certificate.display()))
            }
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() { Err(format!("{} holds no certificate", path.display())) } else { Ok(found) }
}
