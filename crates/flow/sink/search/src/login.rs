//! The login of a client. Secrets are read when they are needed, so that they can be changed while the process runs,
//! and are never displayed.

use std::{fmt, fs, path::Path, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD};
use http::HeaderValue;

type Fetch = dyn Fn() -> Result<String, String> + Send + Sync;

/// A secret. It is read for every connection and never displayed.
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
    /// Creates a secret that `fetch` reads. `fetch` returns the secret's text, or why it cannot be read.
    pub fn new(fetch: impl Fn() -> Result<String, String> + Send + Sync + 'static) -> Secret {
        Secret(Arc::new(fetch))
    }

    /// Creates a secret from a reference, `env:NAME` or `file:path`; `None` for any other text, since a configuration
    /// must not contain a secret itself.
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
    /// HTTP basic authentication.
    Basic { user: String, password: Secret },
    /// The whole `authorization` header: `ApiKey …`, `Bearer …`.
    Header(Secret),
}

impl Login {
    /// Returns the header for all requests of one connection. It is marked as sensitive, so that it is never printed.
    pub(crate) fn header(&self) -> Result<HeaderValue, String> {
        let fetched = |secret: &Secret| {
            // The line break at the end of a file is not part of the secret.
            (secret.0)().map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
        };
        let text = match self {
            Login::Basic { user, .. } if user.contains(':') => {
                return Err("the user's name must not contain a colon".to_owned());
            }
            Login::Basic { user, password } => {
                format!("Basic {}", STANDARD.encode(format!("{user}:{}", fetched(password)?)))
            }
            Login::Header(secret) => fetched(secret)?,
        };
        let mut value =
            HeaderValue::from_str(&text).map_err(|_| "it contains characters that are not allowed in a header")?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Reads a secret from a file; refuses a file that all users can access.
fn read_file(path: &Path) -> Result<String, String> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let about = fs::metadata(path).map_err(|error| error.to_string())?;
        if about.permissions().mode() & 0o007 != 0 {
            return Err("other users may access it; run `chmod 600` on it".to_owned());
        }
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(unix)]
    fn a_secret_is_read_from_a_private_file_or_the_environment() {
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
    fn an_invalid_header_is_reported_without_the_secret() {
        let broken = Login::Header(Secret::new(|| Ok("two\nlines".to_owned())));
        assert!(!broken.header().unwrap_err().contains("lines"));
        let absent = Login::Header(Secret::new(|| Err("TOKEN is not set".to_owned())));
        assert_eq!(absent.header().unwrap_err(), "TOKEN is not set");
        let user = Login::Basic { user: "a:b".to_owned(), password: Secret::new(|| Ok(String::new())) };
        assert!(user.header().is_err());
    }
}
