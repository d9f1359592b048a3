//! A pool of search servers, and requests through it.

use std::time::Duration;

use honeyflow_pool::{self as pool, Connection as _, Dial, Loan, Pool, Settings, SettingsError, Tcp};

use crate::{
    config::Config,
    connector::Search,
    error::Error,
    request::{Answer, Request},
};

/// Cheap to clone; with the last clone the connections end.
pub struct Client<D: Dial = Tcp> {
    pool: Pool<Search<D>>,
}

impl Client {
    /// Opens connections in the background, on the current runtime. What `config` says about servers and sniffing counts
    /// before what the settings say.
    ///
    /// # Errors
    /// All that is wrong with the settings.
    pub fn open(config: Config, settings: Settings) -> Result<Client, SettingsError> {
        let settings = config.settings(settings);
        Ok(Client { pool: Pool::start(Search::new(config), settings)? })
    }
}

impl<D: Dial> Client<D> {
    pub fn over(pool: Pool<Search<D>>) -> Client<D> {
        Client { pool }
    }

    /// One request within one deadline; elsewhere again where that is harmless.
    ///
    /// # Errors
    /// What became of the last try, with the earlier ones in it.
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

/// A connection whose login is no longer good takes nothing new, and the next one logs in with what the secret is by then;
/// nor does one that has answered wrongly. What others have under way on it may end.
async fn send<D: Dial>(loan: Loan<Search<D>>, request: &Request) -> Result<Answer, Error> {
    let sent = loan.send(request).await;
    if sent.as_ref().is_err_and(|error| error.status() == Some(401)) || loan.answered_wrongly() {
        loan.discard();
    }
    sent
}
