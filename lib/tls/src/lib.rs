//! The TLS configuration of a client, with rustls. The certificate files are read again for each connection, so that
//! certificates can be renewed while the program runs. This crate knows no protocol and opens no socket.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// ```
/// use honeyflow_tls::Tls;
///
/// let tls = Tls { roots: Some("/nowhere/roots.pem".into()), ..Tls::default() };
/// assert!(tls.client().unwrap_err().starts_with("/nowhere/roots.pem: "));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Tls {
    /// A PEM file of the trusted root certificates; without it, those of the system.
    pub roots: Option<PathBuf>,
    /// PEM files of the client's own certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name that every server's certificate must contain; without it, the name that the client connects to.
    pub name: Option<String>,
}

impl Tls {
    /// Reads the files and makes a client configuration.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub fn client(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?.with_root_certificates(self.root_certificates()?);
        match &self.certificate {
            None => Ok(config.with_no_client_auth()),
            Some((certificate, key)) => {
                let read = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
                let own = config.with_client_auth_cert(certificates(certificate)?, read);
                own.map_err(|error| format!("{}: {error}", certificate.display()))
            }
        }
    }

    fn root_certificates(&self) -> Result<RootCertStore, String> {
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
            Err("no root certificate found; configure a file of root certificates".to_owned())
        } else {
            Ok(roots)
        }
    }
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_empty() { Err(format!("{} holds no certificate", path.display())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_5_files_are_read_again_and_an_error_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let issued = rcgen::generate_simple_self_signed(["hive".to_owned()]).unwrap();
        let tls = Tls {
            roots: Some(path("roots.pem")),
            certificate: Some((path("own.pem"), path("own.key"))),
            ..Tls::default()
        };
        let assert_error_names = |name: &str| {
            let said = tls.client().unwrap_err();
            assert!(said.contains(name), "{said}");
        };
        assert_error_names("roots.pem: ");
        std::fs::write(path("roots.pem"), "nothing").unwrap();
        assert_error_names("roots.pem holds no certificate");
        std::fs::write(path("roots.pem"), issued.cert.pem()).unwrap();
        assert_error_names("own.key: ");
        std::fs::write(path("own.key"), issued.signing_key.serialize_pem()).unwrap();
        assert_error_names("own.pem: ");
        std::fs::write(path("own.pem"), issued.cert.pem()).unwrap();
        tls.client().unwrap();
    }
}
