//! The rows of a statement, page by page. While the caller handles one page, the next one is fetched.

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
    /// `None` after the last page.
    prefetch: Option<Prefetch>,
}

struct Prefetch {
    query: PageQuery,
    page: JoinHandle<Result<(Version, Rows), Error>>,
}

#[derive(Clone)]
struct PageQuery {
    session: Session,
    statement: Statement,
    values: Arc<dyn BindAll + Send + Sync>,
    how: Options,
}

impl std::fmt::Debug for Prefetch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Prefetch({})", self.query.statement.text())
    }
}

impl PageQuery {
    fn fetch(self) -> Prefetch {
        let query = self.clone();
        let page = tokio::spawn(async move {
            let response = query.session.execute_dyn(&query.statement, &*query.values, &query.how).await?;
            Ok((response.version, Response::into_rows(response)))
        });
        Prefetch { query: self, page }
    }
}

impl Pages {
    pub(super) fn new(
        session: Session,
        statement: Statement,
        values: Arc<dyn BindAll + Send + Sync>,
        how: Options,
    ) -> Self {
        Self { prefetch: Some(PageQuery { session, statement, values, how }.fetch()) }
    }

    /// Returns the next page, `None` after the last one. An error ends the listing.
    pub async fn next(&mut self) -> Option<Result<Rows, Error>> {
        let prefetch = self.prefetch.as_mut()?;
        let page = match (&mut prefetch.page).await {
            Ok(page) => page,
            Err(stopped) => {
                std::panic::resume_unwind(Box::new(format!("the task that reads a page has stopped: {stopped}")))
            }
        };
        let Prefetch { mut query, .. } = self.prefetch.take()?;
        if let Ok((version, rows)) = &page
            && let Some(next) = rows.next_page()
        {
            query.how = query.how.page(next.clone()).only_version(*version);
            self.prefetch = Some(query.fetch());
        }
        Some(page.map(|(_, rows)| rows))
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        if let Some(prefetch) = &self.prefetch {
            prefetch.page.abort();
        }
    }
}
