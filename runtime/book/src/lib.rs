//! Holds the documentation true.
//!
//! Each block of code in each page of Markdown says in its info string how it is held true ([`Annotation`]): it is compiled, run, read
//! by the very parser that it is written for, or an excerpt of a file. A block that says nothing is a [`Finding`], and so are a link
//! that leads nowhere ([`links`]) and a command that its parser refuses ([`commands`]).
//!
//! Reading order: [`Repository`] finds the pages, [`Page`] takes one apart, [`Annotation`] says what is to be done with a block,
//! [`Checker`] does it. `tests/book.rs` is where all of it is asked for.

mod annotation;
mod checker;
pub mod commands;
mod documents;
pub mod links;
mod messages;
mod page;
mod repository;
mod session;

pub use annotation::{Annotation, Document, Needs, Unannotated};
pub use checker::Checker;
pub use page::{Block, Fence, Link, Page};
pub use repository::{Programs, Repository};

/// Something in a page that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The page, from the repository's root.
    pub page: String,
    /// The line in it, from 1.
    pub line: usize,
    /// What does not hold, and what to do.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.page, self.line, self.what)
    }
}

/// The pages with Rust in them, each of which is a doctest; that none is left out is itself tested.
#[cfg(doctest)]
mod compiled {
    #[doc = include_str!("../../../docs/writing-rust.md")]
    mod writing_rust {}
    #[doc = include_str!("../../../docs/resctrl.md")]
    mod resctrl {}
}
