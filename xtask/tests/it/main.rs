//! Looks at the tree as text, where no program can be asked.

mod wire_names;
