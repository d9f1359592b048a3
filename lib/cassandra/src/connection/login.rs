//! The login at a server. Mechanisms are exchangeable; secrets are read when they are needed and never displayed.

use std::fmt;
use std::path::PathBuf;

/// A login mechanism.
pub trait Login: Send + Sync + fmt::Debug {
    /// Begins the dialogue with a server that requires this authenticator; the error says why that is not possible.
    fn begin(&self, authenticator: &str) -> Result<Box<dyn Dialogue>, String>;
}

/// The dialogue of one login.
pub trait Dialogue: Send {
    /// Returns the first token if there is no challenge yet; then one token for each challenge.
    fn reply(&mut self, challenge: Option<&[u8]>) -> Result<Vec<u8>, String>;
}

/// The place of a secret. It is read at every connect, so that it can be changed while the process runs.
#[derive(Clone)]
pub enum Secret {
    /// The name of an environment variable.
    Env(String),
    File(PathBuf),
    /// The secret itself, for tests.
    Plain(String),
}

impl Secret {
    fn read(&self) -> Result<String, String> {
        match self {
            Self::Env(name) => std::env::var(name).map_err(|_| format!("the variable {name} is not set")),
            Self::File(path) => std::fs::read_to_string(path)
                .map(|text| text.trim_end_matches(['\r', '\n']).to_owned())
                .map_err(|error| format!("{} cannot be read: {error}", path.display())),
            Self::Plain(secret) => Ok(secret.clone()),
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "env:{name}"),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Plain(_) => f.write_str("(hidden)"),
        }
    }
}

/// SASL PLAIN, which Cassandra's PasswordAuthenticator and its kin understand.
#[derive(Debug, Clone)]
pub struct Password {
    pub user: String,
    pub password: Secret,
}

impl Login for Password {
    fn begin(&self, _authenticator: &str) -> Result<Box<dyn Dialogue>, String> {
        let password = self.password.read()?;
        Ok(Box::new(Plain { token: format!("\0{}\0{password}", self.user).into_bytes() }))
    }
}

struct Plain {
    token: Vec<u8>,
}

impl Dialogue for Plain {
    fn reply(&mut self, challenge: Option<&[u8]>) -> Result<Vec<u8>, String> {
        match challenge {
            None => Ok(self.token.clone()),
            Some(_) => Err("the server requires more than a password".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_6_secrets_are_not_shown() {
        let login = Password { user: "bee".to_owned(), password: Secret::Plain("honey".to_owned()) };
        let shown = format!("{login:?}");
        assert!(shown.contains("bee") && !shown.contains("honey"), "{shown}");
    }

    #[test]
    fn cq_6_secrets_are_read_at_each_login() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        let login = Password { user: "bee".to_owned(), password: Secret::File(path.clone()) };
        assert!(login.begin("").err().unwrap().contains("cannot be read"));
        for password in ["old", "new"] {
            std::fs::write(&path, format!("{password}\n")).unwrap();
            let token = login.begin("").unwrap().reply(None).unwrap();
            assert_eq!(token, format!("\0bee\0{password}").into_bytes());
        }
    }
}
