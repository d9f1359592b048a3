//! The server's self-signed certificate, made by Java's own tool. A client that trusts the file of roots trusts this
//! server and no other.

use std::path::PathBuf;
use std::process::Command;

use crate::client_program;
use crate::error::Error;
use crate::install;
use crate::recipe::InstanceHome;

/// The certificates that clients trust.
pub const ROOTS: &str = "roots.pem";
const STORE: &str = "node.p12";
/// The password of a file that only its owner can read, for tests.
pub const STORE_PASSWORD: &str = "honeyflow";
const NAMES: &str = "SAN=dns:localhost,ip:127.0.0.1,ip:127.0.0.2,ip:127.0.0.3,ip:127.0.0.4";

/// Creates the certificate once per folder. Returns the path of the server's key store.
pub fn provide(instance: &InstanceHome) -> Result<PathBuf, Error> {
    let (roots, store) = (instance.folder.join(ROOTS), instance.folder.join(STORE));
    if !roots.is_file() {
        let keytool =
            install::program("keytool").ok_or_else(|| Error::Missing("keytool is not installed".to_owned()))?;
        let _ = std::fs::remove_file(&store);
        let tool = |words: &[&str]| {
            let mut command = Command::new(&keytool);
            command.args(words).args(["-alias", "node", "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]);
            command.arg("-keystore").arg(&store).current_dir(&instance.folder);
            client_program::run_within(command, client_program::SETUP_TIME)
                .map_err(|why| Error::failed(format!("cannot create the certificate: {why}")))
        };
        tool(&["-genkeypair", "-keyalg", "EC", "-validity", "3650", "-dname", "CN=localhost", "-ext", NAMES])?;
        tool(&["-exportcert", "-rfc", "-file", ROOTS])?;
    }
    instance.account.own(&store).map(|()| store)
}
