//! Renders `docs` as a site.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace::{self, Workspace};
use crate::{command, crates, state_dir};

/// Base of links that lead out of the book.
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/");

/// Renders the book to `book` in the target directory.
///
/// # Errors
///
/// When mdBook cannot be installed, or does not accept a page.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let program = program(workspace)?;
    command::heading("the book");
    let (source, site) = (workspace.target().join("book-source"), workspace.target().join("book"));
    state_dir::remove(&source)?;
    copy(&workspace.root().join("docs"), &source, 1)?;
    command::run(Command::new(program).arg("build").arg(&source).arg("--dest-dir").arg(&site))?;
    println!("    {}", site.join("index.html").display());
    Ok(())
}

/// mdBook from the `PATH`, or from the cache, for which it is compiled once.
fn program(workspace: &Workspace) -> Result<PathBuf> {
    const NAME: &str = "mdbook";
    let cache = workspace.cache()?;
    let cached = cache.join("bin").join(NAME);
    if let Some(program) = workspace::program(NAME).or_else(|| cached.is_file().then(|| cached.clone())) {
        return Ok(program);
    }
    command::heading("installing mdBook (it is compiled, which takes some minutes; once a machine)");
    crates::install(workspace, NAME, &cache, crates::Optimized::ALittle)?;
    Ok(cached)
}

/// Copies the pages of a folder at this depth in the repository. Links to files of the repository outside of the book become links to the
/// published repository.
fn copy(from: &Path, to: &Path, depth: usize) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("{} cannot be made", to.display()))?;
    let entries = fs::read_dir(from).with_context(|| format!("{} cannot be read", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&path, &copied, depth + 1)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            let text = fs::read_to_string(&path).with_context(|| format!("{} cannot be read", path.display()))?;
            fs::write(&copied, led_out(&text, depth))
                .with_context(|| format!("{} cannot be written", copied.display()))?;
        } else {
            fs::copy(&path, &copied).with_context(|| format!("{} cannot be copied", path.display()))?;
        }
    }
    Ok(())
}

/// A page whose links out of the book are absolute.
fn led_out(page: &str, depth: usize) -> String {
    page.replace(&format!("]({}", "../".repeat(depth)), &format!("]({REPOSITORY}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_out_of_the_book_are_made_absolute() {
        assert_eq!(led_out("[a](../sdk/a.md) [b](c.md)", 1), format!("[a]({REPOSITORY}sdk/a.md) [b](c.md)"));
        assert_eq!(led_out("[a](../b.md) [c](../../d)", 2), format!("[a](../b.md) [c]({REPOSITORY}d)"));
    }
}
