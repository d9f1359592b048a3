//! A login that is refused.

use honeyflow_cassandra::connection::{Password, Secret};

use super::*;

/// PL-168
#[tokio::test]
async fn cq_6_a_refused_login_is_shown_and_not_retried_without_back_off() {
    let mut script = Script::echo();
    script.password = Some(("bee", "honey"));
    let login = Password { user: "bee".to_owned(), password: Secret::Plain("wax".to_owned()) };
    let settings = Settings { login: Some(Arc::new(login)), ..Settings::default() };
    let begun = Instant::now();
    let session = Session::open(settings, patient_pool(script.listen().await)).unwrap();
    let (pool, control) = (session.pool(), session.pool().control());
    // Rounds of discovery cause no further logins, however many there are.
    for round in 1..=50 {
        control.refresh();
        eventually("a round failed", || pool.counters().rounds_failed >= round).await;
    }
    let logins = script.received().iter().filter(|word| *word == "AUTHRESPONSE").count();
    // Two connections that fill the pool and one of discovery, repeated each second.
    let most = 3 * (1 + begun.elapsed().as_secs());
    assert!((1..=most).contains(&(logins as u64)), "{logins} logins in {:?}", begun.elapsed());
    let status = pool.status();
    let server = &status.servers[0];
    let error = server.last_error.as_deref().unwrap_or_default();
    assert!(error.contains("refused the login: Bad credentials") && !error.contains("wax"), "{error}");
    assert_eq!((server.state, pool.counters().suspicions), (ServerState::Down, 0));
    assert!(status.discovery_error.is_some_and(|error| error.contains("refused the login")));
}
