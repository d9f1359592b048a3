//! Real servers, started and mistreated in folders of their own.

mod private;
mod settings;
mod shared;
mod throwaway;
