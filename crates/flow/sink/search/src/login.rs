//! Who we are. Secrets are fetched when they are needed, so that they can be changed while we run, and shown nowhere.

use std::{fmt, fs, path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;

type Fetch = dyn Fn() -> Result<String, String> + Send + Sync;

/// Something that must not be seen: fetched anew for every connection.
///
/// ```
/// use honeyflow_sink_search::Secret;
///
/// let secret = Secret::new(|| std::env::var("SEARCH_PASSWORD").map_err(|_| "SEARCH_PASSWORD is not set".to_owned()));
/// assert_eq!(format!("{secret:?}"), "(hidden)");
/// ```
#[derive(Clone)]
pub struct Secret(Arc<Fetch>);

impl Secret {
    /// The function says what `env:NAME` or `file:path` stands for, or why that cannot be told.
    pub fn new(fetch: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Secret {
        Secret(Arc::new(fetch))
    }

    /// `env:NAME` or `file:path`; none if it is neither, for a secret itself is never written down.
    pub fn named(reference: &str) -> Option<Secret> {
        let (how, name) = reference.split_once(':').filter(|(_, name)| !name.is_empty())?;
        let name = name.to_owned();
        match how {
            "env" => Some(Secret::new(move || std::env::var(&name).map_err(|_| format!("{name} is not set")))),
            "file" => Some(Secret::new(move || read_file(Path::new(&name)).map_err(|why| format!("{name}: {why}")))),
            _ => None,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

#[derive(Clone, Debug)]
pub enum Login {
    /// User and password.
    Basic { user: String, password: Secret },
    /// The whole of the header: `ApiKey …`, `Bearer …`.
    Header(Secret),
}

impl Login {
    /// The header of every request of one connection; marked so that nothing prints it.
    pub(crate) fn header(&self) -> Result<HeaderValue, String> {
        let fetched = |secret: &Secret| {
            // Files end in a line break that nobody means.
            (secret.0)().map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
        };
        let text = match self {
            Login::Basic { user, .. } if user.contains(':') => return Err("a user's name has no colon".to_owned()),
            Login::Basic { user, password } => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{}", fetched(password)?)))
            }
            Login::Header(secret) => fetched(secret)?,
        };
        let mut value = HeaderValue::from_str(&text).map_err(|_| "it has characters that no header may have")?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// A secret that everybody can read is none.
fn read_file(path: &Path) -> Result<String, String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let about = fs::metadata(path).map_err(|error| error.to_string())?;
        if about.permissions().mode() & 0o007 != 0 {
            return Err("others may read it; chmod 600".to_owned());
        }
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_secret_is_named_and_its_file_is_its_owners() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        fs::write(&path, "Bearer abc\n").unwrap();
        let login = Login::Header(Secret::named(&format!("file:{}", path.display())).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
        assert!(login.header().unwrap_err().contains("chmod 600"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(login.header().unwrap().as_bytes(), b"Bearer abc");
        fs::remove_file(&path).unwrap();
        assert!(login.header().is_err());
        let unset = Login::Header(Secret::named("env:HONEYFLOW_NO_SUCH_VARIABLE").unwrap());
        assert_eq!(unset.header().unwrap_err(), "HONEYFLOW_NO_SUCH_VARIABLE is not set");
        assert!(["secret", "env:", "vault:x", ""].iter().all(|text| Secret::named(text).is_none()));
    }

    #[test]
    fn a_login_is_a_header_that_nothing_prints() {
        let password = Secret::new(|| Ok("open sesame\n".to_owned()));
        let header = Login::Basic { user: "Aladdin".to_owned(), password: password.clone() }.header().unwrap();
        assert_eq!(header.as_bytes(), b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
        assert_eq!(format!("{header:?} {password:?}"), "Sensitive (hidden)");
        let key = Login::Header(Secret::new(|| Ok("ApiKey abc".to_owned())));
        assert_eq!(key.header().unwrap().as_bytes(), b"ApiKey abc");
    }

    #[test]
    fn what_cannot_be_a_header_is_told_without_the_secret() {
        let broken = Login::Header(Secret::new(|| Ok("two\nlines".to_owned())));
        assert!(!broken.header().unwrap_err().contains("lines"));
        let absent = Login::Header(Secret::new(|| Err("TOKEN is not set".to_owned())));
        assert_eq!(absent.header().unwrap_err(), "TOKEN is not set");
        let user = Login::Basic { user: "a:b".to_owned(), password: Secret::new(|| Ok(String::new())) };
        assert!(user.header().is_err());
    }
}
