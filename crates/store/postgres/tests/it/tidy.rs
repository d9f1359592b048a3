//! Expired rows are removed, and no others.

use crate::{Shop, number, run};

const OLD: &str = "clock_timestamp() - interval '32 days'";

#[tokio::test]
async fn expired_rows_are_removed() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let mut person = shop.connect().await;
    run(
        &mut person,
        &format!(
            "insert into honeyflow_dedupe(tenant, entity, entity_key, dedupe, until_at) values
               ('', 'book', '1', 'old', {OLD}), ('', 'book', '1', 'new', clock_timestamp() + interval '1 hour');
             insert into honeyflow_signal(tenant, name, signal_key, event, kind, priority, event_at, until_at) values
               ('', 'paid', '1', 1, 'row', 4, {OLD}, {OLD}),
               ('', 'paid', '1', 2, 'row', 4, {OLD}, clock_timestamp() + interval '1 hour');
             insert into honeyflow_run(tenant, entity, entity_key, workflow, version, verdict, steps)
               select '', 'book', n, 'index', 1, 'succeeded', '[]' from generate_series(1, 12500) n;
             insert into honeyflow_dedupe(tenant, entity, entity_key, dedupe, until_at)
               select '', 'book', n, 'old', {OLD} from generate_series(2, 2501) n"
        ),
    )
    .await;
    store.tidy().await.unwrap();
    for (table, left) in
        [("dedupe where dedupe = 'new'", 1), ("dedupe", 1), ("signal where event = 2", 1), ("signal", 1)]
    {
        assert_eq!(number(&mut person, &format!("select count(*) from honeyflow_{table}")).await, left, "{table}");
    }
    assert_eq!(number(&mut person, "select count(*) from honeyflow_run").await, 10_000);
    assert_eq!(
        number(&mut person, "select min(id) from honeyflow_run").await,
        2501,
        "all of the oldest rows are removed"
    );
}

#[tokio::test]
async fn wf_20_a_version_outlives_its_last_mention_by_thirty_days() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let mut person = shop.connect().await;
    run(
        &mut person,
        &format!(
            "insert into honeyflow_definition(workflow, version, definition, used_at) values
               ('book', 1, 'a', {OLD}), ('book', 2, 'b', {OLD}), ('book', 3, 'c', clock_timestamp()),
               ('book', 4, 'd', {OLD}), ('book', 5, 'e', {OLD}), ('mail', 1, 'a', {OLD});
             insert into honeyflow_checkpoint(shard, tenant, entity, entity_key, workflow, phase, step, instance, version,
               covers, attempt, stamp, outcome) values (0, '', 'book', '1', 'book', 0, 'call', 0, 1, '{{1}}', 1, 1, 'done');
             insert into honeyflow_parked(tenant, entity, entity_key, workflow, priority, version, attempts, class, code,
               message) values ('', 'book', '1', 'book', 4, 4, 5, 'reject', 'bad', 'bad')"
        ),
    )
    .await;
    store.tidy().await.unwrap();
    let left: Vec<(String, i32)> =
        sqlx_core::query_as::query_as("select workflow, version from honeyflow_definition order by 1, 2")
            .fetch_all(&mut person)
            .await
            .unwrap();
    let expected = [("book", 1), ("book", 3), ("book", 4), ("book", 5), ("mail", 1)];
    let expected = expected.map(|(workflow, version)| (workflow.to_owned(), version));
    assert_eq!(left, expected, "versions that are named, recently used, or the newest of their workflow stay");
}
