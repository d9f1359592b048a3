//! A bookshop whose books are written to a Cassandra table, and a separate reader of that table.

use std::{
    collections::BTreeMap,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use honeyflow_cassandra::{
    Options, Session,
    connection::{Password, Secret, Settings},
};
use tokio::runtime::Runtime;

use crate::{proxy::Proxy, shop::Shop};

const KEYSPACE: &str = "honeyflow_shop";
const PATIENCE: Duration = Duration::from_secs(30);

pub struct TableShop {
    pub shop: Shop,
    pub proxy: Proxy,
    /// The table's name with its keyspace.
    pub table: String,
    session: Session,
    runtime: Runtime,
}

/// The title and price of each book, by id.
type Books = BTreeMap<i64, (String, Option<f64>)>;

impl TableShop {
    /// Creates the shop with `books` books before the first start; none if there is no server.
    pub fn new(books: u32) -> Option<TableShop> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let url = honeyflow_services::cassandra()?.url;
        let (login, place) = url.strip_prefix("cassandra://")?.split_once('@')?;
        let (user, password) = login.split_once(':')?;
        let place = place.trim_end_matches('/');
        let runtime = Runtime::new().expect("a runtime");
        let session = runtime.block_on(async {
            let login = Password { user: user.to_owned(), password: Secret::Plain(password.to_owned()) };
            let settings = Settings { login: Some(Arc::new(login)), ..Settings::default() };
            let servers = vec![place.to_owned()];
            let servers = honeyflow_pool::Settings { servers, discovery: false, ..Default::default() };
            Session::open(settings, servers).expect("settings")
        });
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let table = format!("{KEYSPACE}.book_{}_{number}", std::process::id());
        let proxy = Proxy::before(place.parse().expect("an address"));
        let shop = TableShop { shop: Shop::new(books), proxy, table, session, runtime };
        let replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}";
        shop.cql(&format!("CREATE KEYSPACE IF NOT EXISTS {KEYSPACE} WITH replication = {replication}"));
        shop.cql(&format!(
            "CREATE TABLE {} (id bigint PRIMARY KEY, name text, price double, honeyflow_version bigint)",
            shop.table
        ));
        shop.configure(user, password);
        Some(shop)
    }

    fn configure(&self, user: &str, password: &str) {
        let file = self.shop.home().join("password");
        std::fs::write(&file, password).expect("a file");
        std::fs::set_permissions(file, PermissionsExt::from_mode(0o600)).expect("a file of ours");
        let (config, from) = (self.shop.config(), "[sink.book]");
        let (before, _) = config.split_once(from).expect("a sink");
        let (port, table) = (self.proxy.port(), &self.table);
        self.shop.write_config(&format!(
            r#"{before}[cassandra.main]
servers   = ["127.0.0.1:{port}"]
discovery = "off"
deadline  = "10s"

[cassandra.main.cql]
user     = "{user}"
password = "file:password"

[sink.book]
url    = "cassandra:main"
table  = "{table}"
column = {{ name = "title" }}

[workflow.book]
on = [{{ source = "shop", entity = "book" }}]
step.load  = {{ use = "sql.load", tries = 1 }}
step.write = {{ use = "cassandra.write", needs = ["load"], into = "book", tries = 1 }}
"#
        ));
    }

    pub fn cql(&self, text: &str) -> honeyflow_cassandra::Rows {
        let answer = self.runtime.block_on(self.session.query(text, &Options::within(PATIENCE)));
        answer.unwrap_or_else(|error| panic!("{text}: {error}: {:?}", error.cause)).into_rows()
    }

    /// The books in the table.
    pub fn books(&self) -> Books {
        let rows = self.cql(&format!("SELECT id, name, price FROM {}", self.table));
        let rows = rows.typed::<(i64, String, Option<f64>)>().map(|row| row.expect("a row"));
        rows.map(|(id, title, price)| (id, (title, price))).collect()
    }

    fn wanted(&self) -> Books {
        let database = self.shop.database();
        let mut select = database.prepare("select id, title, price from book").expect("a statement");
        let rows = select.query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)))).expect("rows");
        rows.map(|row| row.expect("a row")).collect()
    }

    /// Compares table and rows with a comparison that shares no code with the product, and with `honeyflow verify`.
    pub fn assert_equal(&self) {
        assert_eq!(self.books(), self.wanted());
        let verified = self.shop.run(&["verify", "--output", "json"]);
        assert_eq!(verified.code, 0, "{}{}", verified.out, verified.err);
        assert!(verified.out.contains("\"compared\":\"content\""), "{}", verified.out);
    }
}
