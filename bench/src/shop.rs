//! The demo's bookshop, made larger, with its index. It is prepared once and copied for every run, so that both sides
//! begin from the same files.

use std::{
    net::TcpListener,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use honeyflow::{
    config::Config,
    demo::{self, dice::Dice, shop},
    node::{
        Node, Options, Running,
        reindex::{Position, Rows},
        source::OpenSource,
        surface,
    },
};
use honeyflow_engine::shell::Service;
use rusqlite::{Connection, params};
use tempfile::TempDir;

use crate::Result;

const SEED: u64 = 7;
/// Only a machine that hangs needs longer.
const PATIENCE: Duration = Duration::from_secs(600);

/// A folder with configuration, database and data; it is deleted with the value.
pub struct Shop {
    folder: TempDir,
    pub config: Config,
}

impl Shop {
    /// Creates the application's tables, filled, without triggers.
    pub fn bare(books: i64) -> Result<Shop> {
        let folder = tempfile::Builder::new().prefix("honeyflow-bench-").tempdir()?;
        let config = write_config(folder.path())?;
        let shop = Shop { folder, config };
        let mut connection = shop.connect()?;
        shop::make(&mut connection, &mut Dice::new(SEED))?;
        extend(&mut connection, books)?;
        Ok(shop)
    }

    /// Like [`Shop::bare`], with our tables and triggers.
    pub async fn captured(books: i64) -> Result<Shop> {
        let shop = Shop::bare(books)?;
        let source = OpenSource::open(&shop.config, &shop.config.sources[0]).await?;
        source.database.install(source.capture(), true).await?;
        Ok(shop)
    }

    /// Like [`Shop::captured`], with an index that contains every book, and an empty outbox.
    pub async fn indexed(books: i64) -> Result<Shop> {
        let shop = Shop::captured(books).await?;
        let (node, service) = Node::open(&shop.config, &Options::default()).await?;
        let source = &node.sources[0];
        let (entity, workflow) = (&source.bound[0].entity, &shop.config.workflows[0].name);
        Rows { database: &source.database, entity, workflow }.queue_all(Position::default()).await?;
        let mut running = run(&node, &shop.config, service)?;
        shop.wait_until_empty()?;
        node.drain(&mut running, Duration::from_secs(10)).await;
        drop((node, running));
        shop.wait_until_closed()?;
        Ok(shop)
    }

    pub fn copy(&self) -> Result<Shop> {
        let folder = tempfile::Builder::new().prefix("honeyflow-bench-").tempdir()?;
        copy_folder(self.path(), folder.path())?;
        let config = write_config(folder.path())?;
        // Writes the copied files to the disk now, and not while something is measured.
        rustix::fs::sync();
        Ok(Shop { folder, config })
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn database(&self) -> PathBuf {
        self.path().join("shop.db")
    }

    /// Opens the database as the application does.
    pub fn connect(&self) -> Result<Connection> {
        Ok(shop::open(&self.database())?)
    }

    /// Changes every book in one transaction; returns the number of events, one for each key.
    pub fn change_every_book(&self) -> Result<i64> {
        let connection = self.connect()?;
        connection.execute("update book set revision = revision + 1", [])?;
        let waiting = connection.query_row("select count(*) from honeyflow_outbox", [], |row| row.get(0))?;
        connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?;
        Ok(waiting)
    }

    /// Waits until the threads of connections and indexes have closed their files: none may change while they are
    /// copied.
    fn wait_until_closed(&self) -> Result<()> {
        let begun = Instant::now();
        let is_open = || -> std::io::Result<bool> {
            let files = std::fs::read_dir("/proc/self/fd")?.flatten();
            Ok(files.filter_map(|file| std::fs::read_link(file.path()).ok()).any(|file| file.starts_with(self.path())))
        };
        while is_open()? {
            if begun.elapsed() > Duration::from_secs(30) {
                return Err("a file of the shop is still open".into());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(self.connect()?.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?)
    }

    /// Blocks until the outbox is empty; returns when that was seen.
    pub fn wait_until_empty(&self) -> Result<Instant> {
        let connection = self.connect()?;
        let mut any = connection.prepare("select exists(select 1 from honeyflow_outbox)")?;
        let begun = Instant::now();
        loop {
            if !any.query_row([], |row| row.get::<_, bool>(0))? {
                return Ok(Instant::now());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the outbox is not empty after {PATIENCE:?}").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Runs the node as `start` does, on its own port.
pub fn run(node: &Node, config: &Config, service: Service) -> Result<Running> {
    let listener = surface::bind(config.node.listen)?;
    Ok(node.run(config, service, listener)?)
}

/// Writes the demo's configuration with another port: several nodes may run on this machine.
fn write_config(folder: &Path) -> Result<Config> {
    let mut config = demo::write_config(folder)?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let text = std::fs::read_to_string(&config.file)?;
    std::fs::write(&config.file, text.replace(&config.node.listen.to_string(), &port.to_string()))?;
    config.node.listen = port;
    Ok(config)
}

/// Adds books like those of the demo.
fn extend(connection: &mut Connection, books: i64) -> Result<()> {
    let mut dice = Dice::new(SEED + 1);
    let transaction = connection.transaction()?;
    {
        let mut book = transaction.prepare(
            "insert into book (id, title, isbn, price, stock, publisher_id) values (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let mut author = transaction.prepare("insert or ignore into book_author values (?1, ?2)")?;
        for id in shop::BOOKS + 1..=books {
            let (title, price) = (shop::title(&mut dice), shop::price(&mut dice));
            let publisher = 1 + dice.below(shop::PUBLISHERS);
            book.execute(params![id, title, shop::isbn(id), price, dice.below(50), publisher])?;
            author.execute(params![id, 1 + dice.below(shop::AUTHORS)])?;
        }
    }
    transaction.commit()?;
    connection.execute("delete from book where id > ?1", [books])?;
    Ok(())
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
