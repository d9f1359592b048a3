//! The bookshop: the database of an ordinary application. Nothing in this file depends on Honeyflow.

use rusqlite::{Connection, params};

use super::dice::Dice;

pub const PUBLISHERS: i64 = 200;
pub const AUTHORS: i64 = 2_000;
pub const BOOKS: i64 = 20_000;
/// An author of many books: renaming them changes more books than fit into one page of a fan-out.
pub const PROLIFIC: i64 = 1;

const SCHEMA: &str = "
create table publisher (id integer primary key, name text not null, city text);
create table author (id integer primary key, name text not null, born integer);
create table book (id integer primary key, title text not null, isbn text, price real, stock integer not null default 0,
                   revision integer not null default 0, publisher_id integer references publisher(id));
create table book_author (book_id integer not null references book(id) on delete cascade,
                          author_id integer not null references author(id) on delete cascade,
                          primary key (book_id, author_id));
create index book_by_publisher on book(publisher_id);
create index book_by_author on book_author(author_id);
";

pub fn open(path: &std::path::Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(std::time::Duration::from_secs(30))?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    Ok(connection)
}

/// Creates the tables and fills them.
pub fn make(connection: &mut Connection, dice: &mut Dice) -> rusqlite::Result<()> {
    connection.execute_batch(SCHEMA)?;
    let transaction = connection.transaction()?;
    for id in 1..=PUBLISHERS {
        let name = format!("{} {}", dice.word(NAMES), dice.word(&["Press", "Books", "House", "Editions"]));
        transaction.execute("insert into publisher values (?1, ?2, ?3)", params![id, name, dice.word(CITIES)])?;
    }
    for id in 1..=AUTHORS {
        transaction
            .execute("insert into author values (?1, ?2, ?3)", params![id, person(dice), 1900 + dice.below(100)])?;
    }
    for id in 1..=BOOKS {
        transaction.execute(
            "insert into book (id, title, isbn, price, stock, publisher_id) values (?1, ?2, ?3, ?4, ?5, ?6)",
            params![id, title(dice), isbn(id), price(dice), dice.below(50), 1 + dice.below(PUBLISHERS)],
        )?;
        let by_prolific = id % 8 == 0;
        let first = if by_prolific { 1 } else { 2 + dice.below(AUTHORS - 1) };
        transaction.execute("insert or ignore into book_author values (?1, ?2)", params![id, first])?;
        if dice.below(4) == 0 {
            transaction.execute(
                "insert or ignore into book_author values (?1, ?2)",
                params![id, 2 + dice.below(AUTHORS - 1)],
            )?;
        }
    }
    transaction.commit()
}

pub fn title(dice: &mut Dice) -> String {
    match dice.below(3) {
        0 => format!("The {} {}", dice.word(ADJECTIVES), dice.word(NOUNS)),
        1 => format!("{} of the {}", dice.word(NOUNS), dice.word(NOUNS)),
        _ => format!("{} {} and the {}", dice.word(ADJECTIVES), dice.word(NOUNS), dice.word(NOUNS)),
    }
}

pub fn person(dice: &mut Dice) -> String {
    format!("{} {}", dice.word(FIRST), dice.word(NAMES))
}

pub fn isbn(id: i64) -> String {
    format!("978-{:010}", id * 7919 % 9_999_999_967)
}

pub fn price(dice: &mut Dice) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a price below a hundred")]
    let cents = (499 + dice.below(4500)) as f64;
    cents / 100.0
}

const FIRST: &[&str] = &[
    "Ada", "Boris", "Clara", "Dmitri", "Elena", "Farid", "Greta", "Hugo", "Iris", "Jonas", "Kaja", "Leo", "Mina",
    "Noor", "Otto", "Pia", "Quentin", "Rosa", "Sven", "Tova", "Umar", "Vera", "Wim", "Xenia", "Yara", "Zoe",
];
const NAMES: &[&str] = &[
    "Almeida",
    "Bergström",
    "Castellan",
    "Dufour",
    "Eriksen",
    "Fontaine",
    "Galanis",
    "Hoshino",
    "Ivanova",
    "Jansen",
    "Kowalski",
    "Lindqvist",
    "Marchetti",
    "Nakamura",
    "Okafor",
    "Petrov",
    "Quispe",
    "Rosenthal",
    "Santos",
    "Tanaka",
    "Ueda",
    "Vasquez",
    "Weber",
    "Yilmaz",
    "Zeller",
];
const CITIES: &[&str] = &["Lisbon", "Oslo", "Kraków", "Lyon", "Ghent", "Turin", "Leipzig", "Porto", "Tartu", "Graz"];
const ADJECTIVES: &[&str] = &[
    "Silent",
    "Crimson",
    "Forgotten",
    "Endless",
    "Hollow",
    "Golden",
    "Distant",
    "Broken",
    "Hidden",
    "Restless",
    "Northern",
    "Last",
    "Paper",
    "Burning",
    "Patient",
    "Salted",
    "Winter",
    "Second",
];
const NOUNS: &[&str] = &[
    "Garden",
    "River",
    "Archive",
    "Lighthouse",
    "Orchard",
    "Cartographer",
    "Harbour",
    "Mirror",
    "Violin",
    "Island",
    "Clockmaker",
    "Letter",
    "Forest",
    "Bridge",
    "Library",
    "Beekeeper",
    "Honey",
    "Voyage",
    "Storm",
    "Atlas",
];
