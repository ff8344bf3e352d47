//! Tests the documentation.
//!
//! The info string of each code block in each Markdown page says how the block is checked ([`Annotation`]): it is compiled, run, read by
//! the parser that it is written for, or compared with a file. Blocks without an annotation are reported as [`Finding`], and so are links
//! that lead nowhere ([`links`]) and commands that the program's parser refuses ([`commands`]).
//!
//! Reading order: [`Repository`] finds the pages, [`Page`] parses one, [`Annotation`] says how a block is checked, [`Checker`] checks it.
//! `tests/book.rs` runs all of it.

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

/// Something in a page that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Path of the page from the repository's root.
    pub page: String,
    /// The line in it, from 1.
    pub line: usize,
    /// What is wrong, and how to fix it.
    pub what: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.page, self.line, self.what)
    }
}

/// The pages with Rust code, compiled as doctests. A test checks that the list is complete.
#[cfg(doctest)]
mod compiled {
    #[doc = include_str!("../../../docs/writing-rust.md")]
    mod writing_rust {}
    #[doc = include_str!("../../../docs/resctrl.md")]
    mod resctrl {}
}
