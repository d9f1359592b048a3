//! What rows of each table lead to: compiled once from the entities, so that a row of a table without edges costs one
//! map lookup.

use std::sync::Arc;

use hashbrown::HashMap;
use honeyflow_event::Name;
use honeyflow_store::{KeyColumn, Statement};
use smallvec::SmallVec;

use crate::{
    capture::{key_of, names, same_columns, same_table},
    entity::{Edge, EdgeBy, Entity, FanOutMode},
    fan_out,
};

pub(crate) struct Routes {
    /// The routes by table name, both as configured and in lower case.
    tables: HashMap<String, Arc<Route>>,
    entities: HashMap<String, Name>,
}

/// The entities that a row of one captured table leads to.
#[derive(Default)]
pub(crate) struct Route {
    /// The entities that have the same key as the row.
    pub own: SmallVec<[Name; 1]>,
    pub edges: Vec<RouteEdge>,
}

/// An edge from a row to an entity.
pub(crate) struct RouteEdge {
    pub entity: Name,
    /// The columns with the keys that the edge starts from.
    pub columns: Columns,
    /// An update that does not change those columns is not followed.
    pub shallow: bool,
    /// The entity has the row's own table, under another key: a change of the row is a change of the entity itself.
    pub own_table: bool,
    pub to: EdgeTarget,
}

/// Where the columns that an edge starts from are found.
pub(crate) enum Columns {
    /// They are the key of the row.
    Key,
    Payload {
        columns: Vec<String>,
        /// For rows without a payload: the positions of the columns in the row's key, and the number of its parts,
        in_key: Option<(Vec<usize>, usize)>,
        /// or else a statement that reads the current row. None: there is no key to find it by.
        look_up: Option<Arc<Statement>>,
    },
}

pub(crate) enum EdgeTarget {
    /// The columns contain the container's key.
    Container,
    /// The columns are the input of a statement that returns the containers' keys.
    Statement { statement: Arc<Statement>, edge: String },
}

impl Routes {
    pub fn new(entities: &[Entity], messages: &[Name]) -> Routes {
        let mut routes: Vec<(String, Route)> = Vec::new();
        for entity in entities {
            let key = key_of(entities, &entity.table);
            let route = route(&mut routes, &entity.table);
            if same_columns(&entity.key, &key) {
                route.own.push(Name::clone(&entity.name));
            } else {
                let columns = in_payload(&entity.table, names(&entity.key), &key);
                let entity = Name::clone(&entity.name);
                let to = EdgeTarget::Container;
                route.edges.push(RouteEdge { entity, columns, shallow: false, own_table: true, to });
            }
        }
        for entity in entities {
            for edge in entity.edges.iter().filter(|edge| edge.fan_out != FanOutMode::None) {
                let key = key_of(entities, &edge.table);
                self::route(&mut routes, &edge.table).edges.push(route_edge(&entity.name, edge, &key));
            }
        }
        let mut tables = HashMap::new();
        for (table, route) in routes {
            let route = Arc::new(route);
            tables.insert(table.to_ascii_lowercase(), Arc::clone(&route));
            tables.insert(table, route);
        }
        let names = entities.iter().map(|entity| &entity.name).chain(messages);
        let entities = names.map(|name| (name.to_string(), Name::clone(name))).collect();
        Routes { tables, entities }
    }

    pub fn table(&self, name: &str) -> Option<&Route> {
        let route = self.tables.get(name).or_else(|| self.tables.get(&name.to_ascii_lowercase()));
        route.map(|route| &**route)
    }

    pub fn entity(&self, name: &str) -> Option<&Name> {
        self.entities.get(name)
    }
}

fn route<'a>(routes: &'a mut Vec<(String, Route)>, table: &str) -> &'a mut Route {
    let at = routes.iter().position(|(name, _)| same_table(name, table)).unwrap_or_else(|| {
        routes.push((table.to_owned(), Route::default()));
        routes.len() - 1
    });
    &mut routes[at].1
}

fn route_edge(entity: &Name, edge: &Edge, key: &[KeyColumn]) -> RouteEdge {
    let shallow = edge.fan_out == FanOutMode::Shallow;
    let (columns, to) = match &edge.by {
        EdgeBy::Key(columns) => (in_payload(&edge.table, columns.clone(), key), EdgeTarget::Container),
        EdgeBy::Statement(statement) => {
            let to = EdgeTarget::Statement { statement: Arc::clone(statement), edge: fan_out::edge_id(statement) };
            let is_key = same_columns(&edge.table_key, key) && !shallow;
            let columns = if is_key { Columns::Key } else { in_payload(&edge.table, names(&edge.table_key), key) };
            (columns, to)
        }
    };
    RouteEdge { entity: Name::clone(entity), columns, shallow, own_table: false, to }
}

fn in_payload(table: &str, columns: Vec<String>, key: &[KeyColumn]) -> Columns {
    let place = |column: &String| key.iter().position(|part| part.name.eq_ignore_ascii_case(column));
    let places: Option<Vec<usize>> = columns.iter().map(place).collect();
    let look_up = (places.is_none() && !key.is_empty()).then(|| Arc::new(look_up(table, &columns, key)));
    Columns::Payload { columns, in_key: places.map(|places| (places, key.len())), look_up }
}

/// Returns a statement that reads the columns of the current row.
fn look_up(table: &str, columns: &[String], key: &[KeyColumn]) -> Statement {
    let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let selected: Vec<_> = columns.iter().map(|column| format!("t.{}", quote(column))).collect();
    let same: Vec<_> = key.iter().map(|part| format!("t.{0} = k.{0}", quote(&part.name))).collect();
    Statement {
        place: format!("edge from {table} by key"),
        text: format!("select {} from {} t join $keys k on {}", selected.join(", "), quote(table), same.join(" and ")),
        key: key.to_vec(),
        result_key: Vec::new(),
        json: Vec::new(),
    }
}
