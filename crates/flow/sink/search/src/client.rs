//! The client: a pool of connections to search servers, and requests through it.

use std::time::Duration;

use honeyflow_pool::{self as pool, Connection as _, Dial, Loan, Pool, Settings, SettingsError, Tcp};

use crate::{
    config::Config,
    connector::Search,
    error::Error,
    request::{Answer, Request},
};

/// A client of a cluster. Cheap to clone; dropping the last clone closes the connections.
pub struct Client<D: Dial = Tcp> {
    pool: Pool<Search<D>>,
}

impl Client {
    /// Opens connections in the background, on the current runtime. The servers and the sniffing of `config` override
    /// those of the settings.
    ///
    /// # Errors
    /// Returns all wrong settings.
    pub fn open(config: Config, settings: Settings) -> Result<Client, SettingsError> {
        let settings = config.settings(settings);
        Ok(Client { pool: Pool::start(Search::new(config), settings)? })
    }
}

impl<D: Dial> Client<D> {
    pub fn over(pool: Pool<Search<D>>) -> Client<D> {
        Client { pool }
    }

    /// Sends one request within one deadline. Retries it at another server if that is harmless.
    ///
    /// # Errors
    /// Returns the error of the last attempt; it contains those of the earlier attempts.
    pub async fn send(&self, request: &Request, within: Duration) -> Result<Answer, pool::Error<Search<D>>> {
        self.pool.with(request.want(within), |loan| send(loan, request)).await
    }

    pub fn pool(&self) -> &Pool<Search<D>> {
        &self.pool
    }
}

impl<D: Dial> Clone for Client<D> {
    fn clone(&self) -> Client<D> {
        Client { pool: self.pool.clone() }
    }
}

/// Sends a request. If the login was refused, or the server sent something that is not HTTP, the connection is
/// discarded: it takes no new requests, requests in flight may end, and the next connection logs in with the current
/// secret.
async fn send<D: Dial>(loan: Loan<Search<D>>, request: &Request) -> Result<Answer, Error> {
    let sent = loan.send(request).await;
    if sent.as_ref().is_err_and(|error| error.status() == Some(401)) || loan.answered_wrongly() {
        loan.discard();
    }
    sent
}
