//! The server's own certificate, by the tool that Java brings along. It vouches for itself: whoever trusts the file of
//! roots trusts this server and no other.

use std::path::PathBuf;
use std::process::Command;

use crate::ask;
use crate::error::Error;
use crate::install;
use crate::recipe::Place;

/// What clients trust.
pub const ROOTS: &str = "roots.pem";
const STORE: &str = "node.p12";
/// Of a file that only its owner reads, for tests.
pub const STORE_PASSWORD: &str = "honeyflow";
const NAMES: &str = "SAN=dns:localhost,ip:127.0.0.1,ip:127.0.0.2,ip:127.0.0.3,ip:127.0.0.4";

/// Made once for a folder. Returns where the server's store of keys is.
pub fn provide(place: &Place) -> Result<PathBuf, Error> {
    let (roots, store) = (place.folder.join(ROOTS), place.folder.join(STORE));
    if !roots.is_file() {
        let keytool =
            install::program("keytool").ok_or_else(|| Error::Missing("keytool is not installed".to_owned()))?;
        let _ = std::fs::remove_file(&store);
        let tool = |words: &[&str]| {
            let mut command = Command::new(&keytool);
            command.args(words).args(["-alias", "node", "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]);
            command.arg("-keystore").arg(&store).current_dir(&place.folder);
            ask::answer_within(command, ask::SETUP_TIME).map_err(|why| Error::failed(format!("its certificate: {why}")))
        };
        tool(&["-genkeypair", "-keyalg", "EC", "-validity", "3650", "-dname", "CN=localhost", "-ext", NAMES])?;
        tool(&["-exportcert", "-rfc", "-file", ROOTS])?;
    }
    place.account.own(&store).map(|()| store)
}
