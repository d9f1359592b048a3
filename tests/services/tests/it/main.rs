//! Real servers, started and mistreated in private folders.

mod private;
mod settings;
mod shared;
mod throwaway;
