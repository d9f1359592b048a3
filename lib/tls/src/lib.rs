//! How a client sets up TLS by rustls. Files are read anew for each connection, so that certificates can be renewed while we
//! run. Knows no protocol and opens no socket.

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
    /// Whom to believe, in PEM; without it, those whom the system believes.
    pub roots: Option<PathBuf>,
    /// Our own certificate and its key, in PEM.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name that every server's certificate must bear; without it, what the server is called by who connects.
    pub name: Option<String>,
}

impl Tls {
    /// What the files say now.
    ///
    /// # Errors
    /// The file, and what is wrong with it.
    pub fn client(&self) -> Result<ClientConfig, String> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(|error| error.to_string())?.with_root_certificates(self.believed()?);
        match &self.certificate {
            None => Ok(config.with_no_client_auth()),
            Some((certificate, key)) => {
                let read = PrivateKeyDer::from_pem_file(key).map_err(|error| format!("{}: {error}", key.display()))?;
                let own = config.with_client_auth_cert(certificates(certificate)?, read);
                own.map_err(|error| format!("{}: {error}", certificate.display()))
            }
        }
    }

    fn believed(&self) -> Result<RootCertStore, String> {
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
        if roots.is_empty() { Err("there is no root certificate; name a file of them".to_owned()) } else { Ok(roots) }
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
    fn cq_5_files_are_read_anew_and_what_is_wrong_with_them_is_told_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let issued = rcgen::generate_simple_self_signed(["hive".to_owned()]).unwrap();
        let tls = Tls {
            roots: Some(path("roots.pem")),
            certificate: Some((path("own.pem"), path("own.key"))),
            ..Tls::default()
        };
        let told = |name: &str| {
            let said = tls.client().unwrap_err();
            assert!(said.contains(name), "{said}");
        };
        told("roots.pem: ");
        std::fs::write(path("roots.pem"), "nothing").unwrap();
        told("roots.pem holds no certificate");
        std::fs::write(path("roots.pem"), issued.cert.pem()).unwrap();
        told("own.key: ");
        std::fs::write(path("own.key"), issued.signing_key.serialize_pem()).unwrap();
        told("own.pem: ");
        std::fs::write(path("own.pem"), issued.cert.pem()).unwrap();
        tls.client().unwrap();
    }
}
