//! Codes as constants, each with its meaning and what to do, so that a reference page can be made of them.

use crate::Class;

/// One code, as the reference describes it. `C` is how its table classifies codes: failures by their [`Class`], other
/// tables for example by a severity or an HTTP status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code<C: 'static = Class> {
    /// Kebab-case; it never changes, because tables and dashboards hold it.
    pub name: &'static str,
    pub classes: &'static [C],
    pub meaning: &'static str,
    /// What a person can do about it.
    pub remedy: &'static str,
}

/// Declares codes: a constant for each, and `ALL` with their descriptions.
///
/// ```
/// mod codes {
///     honeyflow_runtime::codes! {
///         BAD_KEY = "bad-key" [Reject]
///             "The key of the event is not one of its entity.",
///             "Correct the event at its origin, then retry or drop the parked event.";
///     }
/// }
///
/// let failure = honeyflow_runtime::Failure::reject(codes::BAD_KEY, "book has two key parts, the event has one");
/// assert_eq!(failure.code, "bad-key");
/// assert_eq!(codes::ALL[0].name, codes::BAD_KEY);
/// ```
///
/// Codes that are not failures begin with the type that classifies them:
///
/// ```
/// mod codes {
///     honeyflow_runtime::codes! {
///         u16;
///         NOT_FOUND = "not-found" [404]
///             "There is no such path.",
///             "Correct the path.";
///     }
/// }
///
/// assert_eq!(codes::ALL[0].classes, [404]);
/// ```
#[macro_export]
macro_rules! codes {
    ($($constant:ident = $name:literal [$($class:ident),+] $meaning:literal, $remedy:literal;)*) => {
        $crate::codes! {
            $crate::Class;
            $($constant = $name [$($crate::Class::$class),+] $meaning, $remedy;)*
        }
    };
    ($classified_by:ty; $($constant:ident = $name:literal [$($class:expr),*] $meaning:literal, $remedy:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $constant: &str = $name;
        )*
        /// All codes of this module, for the reference.
        pub const ALL: &[$crate::Code<$classified_by>] = &[$($crate::Code {
            name: $name,
            classes: &[$($class),*],
            meaning: $meaning,
            remedy: $remedy,
        }),*];
    };
}
