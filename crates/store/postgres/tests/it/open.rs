//! Opens and installs a store, and checks which databases it refuses.

use honeyflow_conformance::store::everything;
use honeyflow_runtime::Class;
use honeyflow_store::{Request, Store};
use honeyflow_store_postgres::{Options, PostgresStore, schema};

use crate::{Shop, code, number, run};

const TABLES: &str = "select count(*) from pg_class where relnamespace = 'public'::regnamespace";

#[tokio::test]
async fn ob_19_opening_creates_no_table_and_migrating_is_idempotent() {
    let Some(shop) = Shop::bare().await else { return };
    let mut application = shop.connect().await;
    let store = PostgresStore::open(shop.options()).await.unwrap();
    assert!(!store.is_installed().await.unwrap());
    assert_eq!(number(&mut application, TABLES).await, 0);
    assert_eq!(code(store.call(Request::Poll(everything())).await), "missing-table");
    let installed = store.migrate().await.unwrap();
    assert_eq!((installed.version, installed.shards), (schema::version(), 64));
    assert!(!installed.install_id.is_nil());
    let created = number(&mut application, TABLES).await;
    assert_eq!(store.migrate().await.unwrap(), installed, "twice → no change");
    assert_eq!(number(&mut application, TABLES).await, created);
    let again = PostgresStore::open(Options { shards: 8, ..shop.options() }).await.unwrap();
    assert_eq!(again.migrate().await.unwrap(), installed, "the number of shards stays what it was");
    assert!(store.call(Request::Poll(everything())).await.is_ok());
}

#[tokio::test]
async fn ob_19_the_printed_ddl_installs_the_same_tables() {
    let Some(shop) = Shop::bare().await else { return };
    run(&mut shop.connect().await, &schema::ddl(16)).await;
    let store = PostgresStore::open(shop.options()).await.unwrap();
    let installed = store.installed().await.unwrap().unwrap();
    assert_eq!((installed.version, installed.shards), (schema::version(), 16));
    assert_eq!(store.migrate().await.unwrap(), installed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ob_19_several_nodes_may_install_at_once() {
    let Some(shop) = Shop::bare().await else { return };
    let mut nodes = Vec::new();
    for _ in 0..4 {
        nodes.push(PostgresStore::open(shop.options()).await.unwrap());
    }
    let installed = futures_util::future::join_all(nodes.iter().map(PostgresStore::migrate)).await;
    for one in &installed {
        assert_eq!(one.as_ref().unwrap(), installed[0].as_ref().unwrap());
    }
}

/// OB-1
#[tokio::test]
async fn the_outbox_has_the_specified_columns_and_indexes() {
    let Some((shop, _)) = Shop::new(64).await else { return };
    let mut application = shop.connect().await;
    let listed = "select string_agg(concat_ws(' ', column_name, data_type, is_nullable, column_default), E'\\n'
         order by ordinal_position) from information_schema.columns where table_name = 'honeyflow_outbox'";
    let columns: String = sqlx_core::query_scalar::query_scalar(listed).fetch_one(&mut application).await.unwrap();
    assert_eq!(
        columns,
        "id bigint NO\nformat smallint NO 1\nkind text NO 'row'::text\ntenant text NO ''::text\nentity text NO\n\
         entity_key text NO\nshard smallint NO\npriority smallint NO 4\nworkflow text YES\n\
         created_at timestamp with time zone NO clock_timestamp()\nready_at timestamp with time zone YES\n\
         dedupe text YES\ntraceparent text YES\nroot bigint YES\npayload text YES\n\
         change text YES\ncolumns text YES"
    );
    let listed = "select string_agg(substring(indexdef from 'INDEX .*'), E'\\n' order by indexname) from pg_indexes
         where tablename = 'honeyflow_outbox'";
    let indexes: String = sqlx_core::query_scalar::query_scalar(listed).fetch_one(&mut application).await.unwrap();
    assert_eq!(
        indexes,
        "INDEX honeyflow_outbox_due ON public.honeyflow_outbox USING btree (shard, ready_at) WHERE (ready_at IS NOT NULL)\n\
         INDEX honeyflow_outbox_pkey ON public.honeyflow_outbox USING btree (id)\n\
         INDEX honeyflow_outbox_ready ON public.honeyflow_outbox USING btree (shard, priority, id) WHERE (ready_at IS NULL)"
    );
}

#[tokio::test]
async fn a_schema_newer_than_the_binary_is_refused() {
    let Some((shop, _)) = Shop::new(64).await else { return };
    run(&mut shop.connect().await, "update honeyflow_meta set value = '999' where name = 'schema'").await;
    let failure = PostgresStore::open(shop.options()).await.err().unwrap();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "schema-too-new"), "{failure}");
}

#[tokio::test]
async fn a_failed_open_says_what_to_do() {
    let Some(shop) = Shop::bare().await else { return };
    let (before, server) = shop.url.split_once('@').unwrap();
    let (address, _) = server.split_once('/').unwrap();
    let user = before.rsplit_once(':').unwrap().0;
    for (url, expected, hint) in [
        (format!("{user}:wrong@{server}"), "access-denied", "password"),
        (format!("{before}@{address}/nowhere"), "missing-database", "create it"),
        ("postgres://reader@127.0.0.1:1/shop".to_owned(), "no-connection", "is the server up"),
        (format!("{}?sslmode=require", shop.url), "no-tls", "TLS"),
    ] {
        let failure = PostgresStore::open(Options::new(&url, "shop").unwrap()).await.err().unwrap();
        assert_eq!((failure.class, &*failure.code), (Class::Retry, expected), "{failure}");
        assert!(failure.message.contains(hint), "{failure}");
        assert!(!failure.message.contains("wrong"), "a password is never shown: {failure}");
    }
    let failure = Options::new("postgres://shop:secret@[", "shop").err().unwrap();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "bad-url"));
    assert!(!failure.message.contains("secret"), "{failure}");
    let odd = Options { shards: 48, ..shop.options() };
    assert_eq!(PostgresStore::open(odd).await.err().unwrap().code, "bad-shards");
}

#[tokio::test]
async fn rl_20_a_role_whose_commits_may_be_lost_is_refused() {
    let Some(shop) = Shop::bare().await else { return };
    let name = shop.name();
    run(&mut shop.connect().await, &format!("alter database {name} set synchronous_commit = off")).await;
    let failure = PostgresStore::open(shop.options()).await.err().unwrap();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "not-durable"), "{failure}");
    assert!(failure.message.contains("set synchronous_commit = on"), "{failure}");
}
