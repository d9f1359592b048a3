//! `honeyflow source confirm`: documents whose rows are gone without a word may be removed.

use crate::{
    cli::{Context, Done, Fault, block_on, no_such, open},
    node::hold,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The source, as in [source.NAME]; may be left out where there is only one
    source: Option<String>,
    /// The entity, as in [entity.NAME]; all that are held if left out
    entity: Option<String>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let loaded = context.load()?;
    let (config, source) = super::install::chosen(&loaded, arguments.source.as_deref())?;
    let entities: Vec<_> = config.entities_of(&source.name).collect();
    if let Some(name) = &arguments.entity
        && !entities.iter().any(|entity| *entity.name == **name)
    {
        return Err(no_such("entity", name, entities.iter().map(|entity| &*entity.name)));
    }
    let database = block_on(open(config, source))??;
    let held = block_on(hold::held(&database.store))??;
    let wanted = |name: &str| arguments.entity.as_ref().is_none_or(|wanted| wanted == name);
    let mut confirmed = false;
    for entity in
        entities.iter().filter(|entity| wanted(&entity.name) && held.iter().any(|name| **name == *entity.name))
    {
        // whoever runs compares once more, and then removes what it finds
        block_on(async {
            hold::confirm(&database.store, &entity.name).await?;
            database.owe_comparison(vec![entity.table.as_str()]).await
        })??;
        context
            .output
            .note(&format!("{}: documents without a row will be removed, once a node has compared", entity.name));
        confirmed = true;
    }
    if !confirmed {
        context.output.note("nothing is held");
    }
    Ok(Done::Well)
}
