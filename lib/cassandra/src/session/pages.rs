//! The rows of a statement, page by page. While one page is worked on, the next is on its way.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::{Error, Session};
use crate::options::Options;
use crate::rows::Rows;
use crate::statement::Statement;
use crate::value::BindAll;
use crate::wire::{Response, Version};

#[derive(Debug)]
pub struct Pages {
    /// `None` after the last one.
    ahead: Option<Ahead>,
}

struct Ahead {
    what: What,
    page: JoinHandle<Result<(Version, Rows), Error>>,
}

#[derive(Clone)]
struct What {
    session: Session,
    statement: Statement,
    values: Arc<dyn BindAll + Send + Sync>,
    how: Options,
}

impl std::fmt::Debug for Ahead {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ahead({})", self.what.statement.text())
    }
}

impl What {
    fn fetch(self) -> Ahead {
        let what = self.clone();
        let page = tokio::spawn(async move {
            let response = what.session.execute_dyn(&what.statement, &*what.values, &what.how).await?;
            Ok((response.version, Response::into_rows(response)))
        });
        Ahead { what: self, page }
    }
}

impl Pages {
    pub(super) fn new(
        session: Session,
        statement: Statement,
        values: Arc<dyn BindAll + Send + Sync>,
        how: Options,
    ) -> Self {
        Self { ahead: Some(What { session, statement, values, how }.fetch()) }
    }

    /// The next page, `None` after the last. An error ends it.
    pub async fn next(&mut self) -> Option<Result<Rows, Error>> {
        let ahead = self.ahead.as_mut()?;
        let page = match (&mut ahead.page).await {
            Ok(page) => page,
            Err(stopped) => std::panic::resume_unwind(Box::new(format!("a page was not read: {stopped}"))),
        };
        let Ahead { mut what, .. } = self.ahead.take()?;
        if let Ok((version, rows)) = &page
            && let Some(next) = rows.next_page()
        {
            what.how = what.how.page(next.clone()).spoken(*version);
            self.ahead = Some(what.fetch());
        }
        Some(page.map(|(_, rows)| rows))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(ahead) = &self.ahead {
            ahead.page.abort();
        }
    }
}
