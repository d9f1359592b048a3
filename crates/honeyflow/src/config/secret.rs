//! Secrets, and addresses that may contain one. The configuration contains a reference to a secret (`env:NAME`,
//! `file:path`), never the secret itself. A secret is read when it is used, cannot be printed, and is overwritten in
//! memory when it is dropped.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A secret text. It implements no trait with which it could be printed, compared or serialised.
pub struct Secret(String);

impl Secret {
    pub fn new(text: String) -> Secret {
        Secret(text)
    }

    /// The text itself; pass it only to the code that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.0).into_bytes();
        bytes.fill(0);
        // Keeps the optimiser from removing the overwrite as unused.
        std::hint::black_box(&bytes);
    }
}

/// An address in the configuration: the address itself (without password), or a reference to it.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    Written(String),
    Env(String),
    File(PathBuf),
}

#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    #[error("the environment variable {0} is not set")]
    Unset(String),
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable { path: PathBuf, reason: String },
    #[error("{} can be read by every user of this machine", .0.display())]
    Open(PathBuf),
}

impl SecretError {
    pub fn help(&self) -> String {
        match self {
            SecretError::Unset(name) => format!("set it for the node: export {name}=…"),
            SecretError::Unreadable { .. } => "the file must contain only the secret, on its first line".to_owned(),
            SecretError::Open(path) => format!("chmod 600 {}", path.display()),
        }
    }
}

impl Url {
    /// Parses an address or a reference. Relative files are in the folder of the configuration file.
    pub fn read(text: &str, folder: &Path) -> Url {
        if let Some(name) = text.strip_prefix("env:") {
            Url::Env(name.to_owned())
        } else if let Some(path) = text.strip_prefix("file:") {
            Url::File(folder.join(path))
        } else {
            Url::Written(text.to_owned())
        }
    }

    pub fn resolve(&self) -> Result<Secret, SecretError> {
        match self {
            Url::Written(text) => Ok(Secret::new(text.clone())),
            Url::Env(name) => {
                let value = std::env::var(name).ok().filter(|value| !value.is_empty());
                value.map(Secret::new).ok_or_else(|| SecretError::Unset(name.clone()))
            }
            Url::File(path) => read_file(path),
        }
    }
}

fn read_file(path: &Path) -> Result<Secret, SecretError> {
    let unreadable =
        |reason: std::io::Error| SecretError::Unreadable { path: path.to_owned(), reason: reason.to_string() };
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        if std::fs::metadata(path).map_err(unreadable)?.permissions().mode() & 0o007 != 0 {
            return Err(SecretError::Open(path.to_owned()));
        }
    }
    let whole = Secret::new(std::fs::read_to_string(path).map_err(unreadable)?);
    Ok(Secret::new(whole.reveal().lines().next().unwrap_or_default().trim().to_owned()))
}

/// Shows the address with any password hidden.
impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Url::Written(text) => f.write_str(&redact(text)),
            Url::Env(name) => write!(f, "env:{name}"),
            Url::File(path) => write!(f, "file:{}", path.display()),
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The range of the password in the first `scheme://user:password@`.
fn password(text: &str) -> Option<std::ops::Range<usize>> {
    let mut from = 0;
    while let Some(at) = text[from..].find("://") {
        let start = from + at + 3;
        let authority_end =
            text[start..].find(['/', '?', '#', '"', '\'', ' ', '\n']).map_or(text.len(), |end| start + end);
        // A password may itself contain an unescaped `/` or `@`: the last `@` of the word ends it.
        let word_end = text[start..].find(['"', '\'', ' ', '\n']).map_or(text.len(), |end| start + end);
        let colon = text[start..authority_end].find(':').map(|colon| start + colon + 1);
        if let Some(colon) = colon
            && let Some(at) = text[colon..word_end].rfind('@')
            && at > 0
        {
            return Some(colon..colon + at);
        }
        from = start;
    }
    // A query parameter such as `?password=…` counts, too.
    for name in ["password=", "sslpassword=", "token="] {
        if let Some(at) = text.find(&format!("?{name}")).or_else(|| text.find(&format!("&{name}"))) {
            let start = at + 1 + name.len();
            let end = text[start..].find(['&', '#', '"', '\'', ' ', '\n']).map_or(text.len(), |end| start + end);
            if end > start && &text[start..end] != HIDDEN {
                return Some(start..end);
            }
        }
    }
    None
}

const HIDDEN: &str = "***";

pub fn has_password(text: &str) -> bool {
    password(text).is_some()
}

/// The text with the passwords of addresses in it replaced by stars.
pub fn redact(text: &str) -> String {
    let mut shown = text.to_owned();
    // Each pass hides one password and continues after it.
    let mut done = 0;
    while let Some(place) = password(&shown[done..]).map(|place| place.start + done..place.end + done) {
        shown.replace_range(place.clone(), HIDDEN);
        done = place.start + HIDDEN.len();
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn se_20_passwords_are_found_and_hidden() {
        for (written, shown) in [
            ("postgres://shop:canary@db/shop", "postgres://shop:***@db/shop"),
            ("postgres://shop:can/a@ry@db:5432/shop", "postgres://shop:***@db:5432/shop"),
            ("url = \"mysql://u:canary@h\" # https://a:canary@b", "url = \"mysql://u:***@h\" # https://a:***@b"),
            ("postgres://db/shop?user=a&password=canary&x=1", "postgres://db/shop?user=a&password=***&x=1"),
        ] {
            assert_eq!(redact(written), shown);
            assert!(has_password(written));
        }
        for plain in
            ["sqlite:shop.db", "https://search:9200", "postgres://shop@db/shop", "http://[::1]:80/", "http://u:@h/"]
        {
            assert_eq!(redact(plain), plain);
            assert!(!has_password(plain), "{plain}");
        }
    }

    #[test]
    fn references_are_resolved_when_used() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(
            Url::read("env:HONEYFLOW_NOT_SET", folder.path()).resolve().err(),
            Some(SecretError::Unset("HONEYFLOW_NOT_SET".into()))
        );
        let path = folder.path().join("url");
        std::fs::write(&path, "sqlite:shop.db\n").unwrap();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            assert_eq!(Url::read("file:url", folder.path()).resolve().err(), Some(SecretError::Open(path.clone())));
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        }
        assert_eq!(
            Url::read("file:url", folder.path()).resolve().unwrap_or_else(|_| panic!()).reveal(),
            "sqlite:shop.db"
        );
        assert_eq!(Url::read("file:url", Path::new("/etc/honeyflow")).to_string(), "file:/etc/honeyflow/url");
    }
}
