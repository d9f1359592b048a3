//! TLS: names, roots, client certificates, renewal.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use honeyflow_cassandra::connection::{Connection, Limits, Settings, Tls};
use honeyflow_cassandra::error::Cause;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{limits, patient, refused, text};
use crate::scripted::Script;

/// A certificate authority and its files.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("roots.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    fn roots(&self) -> PathBuf {
        self.folder.path().join("roots.pem")
    }

    fn certificate(&self, names: &[&str], expired: bool) -> (String, String) {
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        if expired {
            params.not_after = rcgen::date_time_ymd(2001, 1, 1);
            params.not_before = rcgen::date_time_ymd(2000, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Writes a certificate and its key to files.
    fn files(&self, name: &str) -> (PathBuf, PathBuf) {
        let (certificate, key) = self.certificate(&[name], false);
        let path = |end: &str| self.folder.path().join(format!("{name}.{end}"));
        std::fs::write(path("pem"), certificate).unwrap();
        std::fs::write(path("key"), key).unwrap();
        (path("pem"), path("key"))
    }

    async fn listen(&self, names: &[&str], expired: bool, clients: Option<&Authority>) -> SocketAddr {
        let (certificate, key) = self.certificate(names, expired);
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = match clients {
            None => config.with_no_client_auth(),
            Some(authority) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_file(authority.roots()).unwrap()).unwrap();
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider);
                config.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        Script::echo().serve(stream).await;
                    }
                });
            }
        });
        address
    }
}

fn settings(tls: Tls) -> Settings {
    Settings { tls: Some(tls), ..Settings::default() }
}

async fn tls_refused(address: SocketAddr, tls: Tls) -> String {
    match refused(address, &settings(tls), limits()).await {
        Cause::Tls(why) => why,
        // TLS 1.3 reports a missing certificate only after the handshake.
        Cause::Ended(ending) => ending.to_string(),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn cq_5_a_certificate_must_contain_the_name_and_come_from_a_known_root() {
    let authority = Authority::new();
    let roots = Some(authority.roots());
    let address = authority.listen(&["127.0.0.1", "db.example"], false, None).await;
    for name in [None, Some("db.example".to_owned())] {
        let tls = Tls { roots: roots.clone(), name, ..Tls::default() };
        let connection = Connection::connect(address, &settings(tls), limits()).await.unwrap();
        let long = format!("SELECT '{}'", "honey".repeat(100_000));
        assert_eq!(text(connection.query(&long, &patient()).await.unwrap()), long);
    }
    let other_name = Tls { roots: roots.clone(), name: Some("other.example".to_owned()), ..Tls::default() };
    assert!(tls_refused(address, other_name).await.contains("not valid for name"));
    let stranger = Authority::new();
    let why = tls_refused(address, Tls { roots: Some(stranger.roots()), ..Tls::default() }).await;
    assert!(why.contains("UnknownIssuer") || why.contains("BadSignature"), "{why}");
    let expired = authority.listen(&["127.0.0.1"], true, None).await;
    let why = tls_refused(expired, Tls { roots, ..Tls::default() }).await;
    assert!(why.contains("expired"), "{why}");
}

#[tokio::test]
async fn cq_5_a_client_certificate_is_sent_to_a_server_that_requires_one() {
    let (authority, clients) = (Authority::new(), Authority::new());
    let address = authority.listen(&["127.0.0.1"], false, Some(&clients)).await;
    let roots = Some(authority.roots());
    let certificate = Some(clients.files("bee"));
    let tls = Tls { roots: roots.clone(), certificate, ..Tls::default() };
    let connection = Connection::connect(address, &settings(tls), limits()).await.unwrap();
    assert_eq!(text(connection.query("SELECT 1", &patient()).await.unwrap()), "SELECT 1");
    tls_refused(address, Tls { roots, ..Tls::default() }).await;
}

#[tokio::test]
async fn cq_5_files_are_read_for_each_connection() {
    let (old, new) = (Authority::new(), Authority::new());
    let address = new.listen(&["127.0.0.1"], false, None).await;
    let roots = old.roots();
    let tls = settings(Tls { roots: Some(roots.clone()), ..Tls::default() });
    assert!(Connection::connect(address, &tls, limits()).await.is_err());
    std::fs::copy(new.roots(), &roots).unwrap();
    assert!(Connection::connect(address, &tls, limits()).await.is_ok());
    std::fs::remove_file(&roots).unwrap();
    let Cause::Tls(why) = refused(address, &tls, limits()).await else { panic!("no roots, and it connected") };
    assert!(why.contains("roots.pem"), "{why}");
}

/// PL-164
#[tokio::test]
async fn silence_in_the_handshake_of_tls_ends_at_the_limit() {
    let authority = Authority::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = settings(Tls { roots: Some(authority.roots()), ..Tls::default() });
    let short = Limits { ready: Duration::from_millis(50), ..limits() };
    let cause = refused(address, &tls, short).await;
    assert_eq!(cause.to_string(), "did not answer the TLS handshake within 50ms");
    drop(listener);
}
