//! `honeyflow source confirm`: an operator confirms that documents may be deleted whose rows are gone without a delete
//! event. The delete guard holds them until then.

use crate::{
    cli::{Context, Fault, Outcome, block_on, no_such, open},
    node::delete_guard,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Source, as in [source.NAME]; optional if there is only one
    source: Option<String>,
    /// Entity, as in [entity.NAME] [default: all entities with held documents]
    entity: Option<String>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let loaded = context.load()?;
    let (config, source) = super::install::select_source(&loaded, arguments.source.as_deref())?;
    let entities: Vec<_> = config.entities_of(&source.name).collect();
    if let Some(name) = &arguments.entity
        && !entities.iter().any(|entity| *entity.name == **name)
    {
        return Err(no_such("entity", name, entities.iter().map(|entity| &*entity.name)));
    }
    let database = block_on(open(config, source))??;
    let held = block_on(delete_guard::held_entities(&database.store))??;
    let wanted = |name: &str| arguments.entity.as_ref().is_none_or(|wanted| wanted == name);
    let mut confirmed = false;
    for entity in
        entities.iter().filter(|entity| wanted(&entity.name) && held.iter().any(|name| **name == *entity.name))
    {
        // The node compares documents and rows once more, and then deletes the documents without a row.
        block_on(async {
            delete_guard::confirm(&database.store, &entity.name).await?;
            database.owe_comparison(vec![entity.table.as_str()]).await
        })??;
        context.output.note(&format!(
            "{}: confirmed; a node will compare once more and delete the documents without a row",
            entity.name
        ));
        confirmed = true;
    }
    if !confirmed {
        context.output.note("no documents are held");
    }
    Ok(Outcome::Success)
}
