//! One page of rows. Cells stay bytes until the caller reads them.

use std::sync::Arc;

use bytes::Bytes;

use crate::value::{FromCell, Value, ValueMismatch};
use crate::wire::{Column, Malformed, Metadata, Reader};

/// One page of rows.
///
/// ```
/// # fn example(rows: &honeyflow_cassandra::Rows) -> Result<(), honeyflow_cassandra::ValueMismatch> {
/// for row in rows.typed::<(i32, Option<&str>)>() {
///     let (id, title) = row?;
///     println!("{id}: {}", title.unwrap_or("untitled"));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rows {
    metadata: Metadata,
    columns: Arc<[Column]>,
    count: usize,
    cells: Bytes,
}

impl Rows {
    /// The caller has checked `count` against the number of columns and bytes.
    pub(crate) fn new(metadata: Metadata, count: usize, cells: Bytes) -> Self {
        let columns = metadata.columns.clone().unwrap_or_default();
        Self { metadata, columns, count, cells }
    }

    /// Sets the columns of rows that came without them: those of the prepared statement.
    pub fn with_columns(mut self, columns: &Arc<[Column]>) -> Result<Self, Malformed> {
        if self.metadata.columns.is_none() {
            if self.metadata.count != columns.len() {
                let found = format!("{} columns for {}", self.metadata.count, columns.len());
                return Err(Malformed::Unexpected { what: "the number of columns", found });
            }
            self.columns = Arc::clone(columns);
        }
        Ok(self)
    }

    pub fn columns(&self) -> &Arc<[Column]> {
        &self.columns
    }

    pub fn len(&self) -> usize {
        self.count
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The page state from which the next page continues; `None` on the last page.
    pub fn next_page(&self) -> Option<&Bytes> {
        self.metadata.next_page.as_ref()
    }

    /// Version 5 only: the id of the columns, if they have changed since the statement was prepared.
    pub fn changed_id(&self) -> Option<&Bytes> {
        self.metadata.changed_id.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Row<'_>, Malformed>> {
        let mut from = Reader::new(&self.cells);
        // After an incomplete cell the position of the next one is unknown.
        let mut broken = false;
        (0..self.count).map_while(move |_| {
            (!broken).then(|| {
                let cells = (0..self.columns.len()).map(|_| from.bytes("a cell")).collect::<Result<_, _>>();
                broken = cells.is_err();
                Ok(Row { columns: &self.columns, cells: cells? })
            })
        })
    }

    pub fn typed<'r, T: FromRow<'r>>(&'r self) -> impl Iterator<Item = Result<T, ValueMismatch>> {
        self.iter().map(|row| T::read(&row?))
    }

    /// Reads the first row, if there is one.
    pub fn first<'r, T: FromRow<'r>>(&'r self) -> Result<Option<T>, ValueMismatch> {
        self.typed().next().transpose()
    }
}

#[derive(Debug, Clone)]
pub struct Row<'r> {
    columns: &'r [Column],
    cells: Vec<Option<&'r [u8]>>,
}

impl<'r> Row<'r> {
    pub fn columns(&self) -> &'r [Column] {
        self.columns
    }

    /// Reads the cell at a position.
    pub fn at<T: FromCell<'r>>(&self, at: usize) -> Result<T, ValueMismatch> {
        let (Some(column), Some(cell)) = (self.columns.get(at), self.cells.get(at)) else {
            return Err(ValueMismatch::Count { wanted: at + 1, given: self.cells.len() });
        };
        T::read(&column.kind, *cell).map_err(|why| why.in_column(&column.name))
    }

    /// Reads the cell of a column.
    pub fn get<T: FromCell<'r>>(&self, name: &str) -> Result<T, ValueMismatch> {
        let at = self.columns.iter().position(|column| column.name == name);
        self.at(at.ok_or_else(|| ValueMismatch::NoColumn(name.to_owned()))?)
    }
}

/// A type that is read from all columns of a row, in their order.
pub trait FromRow<'r>: Sized {
    fn read(row: &Row<'r>) -> Result<Self, ValueMismatch>;
}

impl<'r> FromRow<'r> for Vec<Value> {
    fn read(row: &Row<'r>) -> Result<Self, ValueMismatch> {
        (0..row.columns.len()).map(|at| row.at(at)).collect()
    }
}

macro_rules! from_row {
    ($($name:ident $at:tt),+; $count:literal) => {
        impl<'r, $($name: FromCell<'r>),+> FromRow<'r> for ($($name,)+) {
            fn read(row: &Row<'r>) -> Result<Self, ValueMismatch> {
                if row.columns.len() != $count {
                    return Err(ValueMismatch::Count { wanted: $count, given: row.columns.len() });
                }
                Ok(($(row.at::<$name>($at)?,)+))
            }
        }
    };
}

from_row!(A 0; 1);
from_row!(A 0, B 1; 2);
from_row!(A 0, B 1, C 2; 3);
from_row!(A 0, B 1, C 2, D 3; 4);
from_row!(A 0, B 1, C 2, D 3, E 4; 5);
from_row!(A 0, B 1, C 2, D 3, E 4, F 5; 6);
from_row!(A 0, B 1, C 2, D 3, E 4, F 5, G 6; 7);
from_row!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7; 8);
