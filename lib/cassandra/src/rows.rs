//! One page of rows. Cells stay the bytes that came until somebody asks for one.

use std::sync::Arc;

use bytes::Bytes;

use crate::value::{FromCell, Unfit, Value};
use crate::wire::{Column, Malformed, Metadata, Reader};

/// ```
/// # fn example(rows: &honeyflow_cassandra::Rows) -> Result<(), honeyflow_cassandra::Unfit> {
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
    /// `count` has been compared with the number of columns and the bytes.
    pub(crate) fn new(metadata: Metadata, count: usize, cells: Bytes) -> Self {
        let columns = metadata.columns.clone().unwrap_or_default();
        Self { metadata, columns, count, cells }
    }

    /// For rows that came without columns: those of the statement, as it was prepared.
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

    /// Where the next page begins; `None` on the last.
    pub fn next_page(&self) -> Option<&Bytes> {
        self.metadata.next_page.as_ref()
    }

    /// Version 5: the columns are others than when the statement was prepared, and have this id now.
    pub fn changed_id(&self) -> Option<&Bytes> {
        self.metadata.changed_id.as_ref()
    }

    pub fn iter(&self) -> impl Iterator<Item = Result<Row<'_>, Malformed>> {
        let mut from = Reader::new(&self.cells);
        // Behind a cell that is not all there, nothing has a known place.
        let mut broken = false;
        (0..self.count).map_while(move |_| {
            (!broken).then(|| {
                let cells = (0..self.columns.len()).map(|_| from.bytes("a cell")).collect::<Result<_, _>>();
                broken = cells.is_err();
                Ok(Row { columns: &self.columns, cells: cells? })
            })
        })
    }

    pub fn typed<'r, T: FromRow<'r>>(&'r self) -> impl Iterator<Item = Result<T, Unfit>> {
        self.iter().map(|row| T::read(&row?))
    }

    /// The first row, if there is one.
    pub fn first<'r, T: FromRow<'r>>(&'r self) -> Result<Option<T>, Unfit> {
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

    /// By place.
    pub fn at<T: FromCell<'r>>(&self, at: usize) -> Result<T, Unfit> {
        let (Some(column), Some(cell)) = (self.columns.get(at), self.cells.get(at)) else {
            return Err(Unfit::Count { wanted: at + 1, given: self.cells.len() });
        };
        T::read(&column.kind, *cell).map_err(|why| why.in_column(&column.name))
    }

    /// By name.
    pub fn get<T: FromCell<'r>>(&self, name: &str) -> Result<T, Unfit> {
        let at = self.columns.iter().position(|column| column.name == name);
        self.at(at.ok_or_else(|| Unfit::NoColumn(name.to_owned()))?)
    }
}

/// All columns of a row at once, by place.
pub trait FromRow<'r>: Sized {
    fn read(row: &Row<'r>) -> Result<Self, Unfit>;
}

impl<'r> FromRow<'r> for Vec<Value> {
    fn read(row: &Row<'r>) -> Result<Self, Unfit> {
        (0..row.columns.len()).map(|at| row.at(at)).collect()
    }
}

macro_rules! from_row {
    ($($name:ident $at:tt),+; $count:literal) => {
        impl<'r, $($name: FromCell<'r>),+> FromRow<'r> for ($($name,)+) {
            fn read(row: &Row<'r>) -> Result<Self, Unfit> {
                if row.columns.len() != $count {
                    return Err(Unfit::Count { wanted: $count, given: row.columns.len() });
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
