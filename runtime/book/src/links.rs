//! Checks links between pages: the file and the heading have to exist.

use std::collections::BTreeSet;
use std::path::Path;

use crate::Finding;
use crate::page::Page;
use crate::repository::Repository;

/// Findings about the links of all pages.
pub fn check(repository: &Repository, pages: &[Page]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages {
        for link in &page.links {
            if let Err(what) = follow(repository, pages, page, &link.to) {
                findings.push(Finding { page: page.path.clone(), line: link.line, what });
            }
        }
    }
    findings
}

/// Findings about the table of contents, which has to list each page of the folder `docs` once.
pub fn check_summary(pages: &[Page]) -> Vec<Finding> {
    const SUMMARY: &str = "docs/SUMMARY.md";
    let finding = |line, what| Finding { page: SUMMARY.to_owned(), line, what };
    let Some(summary) = pages.iter().find(|page| page.path == SUMMARY) else {
        return vec![finding(1, "it is missing".to_owned())];
    };
    let mut listed = BTreeSet::new();
    let mut findings = Vec::new();
    for link in &summary.links {
        if !listed.insert(format!("docs/{}", link.to)) {
            findings.push(finding(link.line, format!("`{}` is listed twice", link.to)));
        }
    }
    let is_chapter = |page: &&Page| page.path.starts_with("docs/") && page.path != SUMMARY;
    let unlisted = pages.iter().filter(is_chapter).filter(|page| !listed.contains(&page.path));
    findings.extend(unlisted.map(|page| finding(1, format!("{} is in no chapter; add it", page.path))));
    findings
}

fn follow(repository: &Repository, pages: &[Page], page: &Page, to: &str) -> Result<(), String> {
    if to.contains("://") || to.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = to.split_once('#').map_or((to, None), |(path, anchor)| (path, Some(anchor)));
    let target = if path.is_empty() {
        page.path.clone()
    } else {
        resolve(&page.path, path).ok_or_else(|| format!("`{to}` leads out of the repository"))?
    };
    if !repository.root().join(&target).exists() {
        return Err(format!("`{to}` leads to {target}, which is not there"));
    }
    let (Some(anchor), Some(target)) = (anchor, pages.iter().find(|page| page.path == target)) else { return Ok(()) };
    if target.anchors.iter().any(|known| known == anchor) {
        return Ok(());
    }
    Err(format!("`{to}`: {} has no heading `#{anchor}`; it has: {}", target.path, target.anchors.join(", ")))
}

/// Resolves a path in a page, relative to the repository's root; `None` if it leads out of the repository.
fn resolve(page: &str, path: &str) -> Option<String> {
    let folder = Path::new(page).parent()?.to_str()?;
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_within_the_repository() {
        assert_eq!(resolve("docs/a.md", "../deploy/README.md").as_deref(), Some("deploy/README.md"));
        assert_eq!(resolve("README.md", "docs/a.md").as_deref(), Some("docs/a.md"));
        assert_eq!(resolve("docs/a.md", "../../b.md"), None);
    }

    #[test]
    fn a_link_into_nothing_is_told() {
        let text = "# Here\n[a](#here) [b](#there) [c](no-such.md) [d](https://example.com/x.md#y)\n";
        let pages = [Page::new("README.md", text)];
        let found: Vec<_> = check(&Repository::here(), &pages).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("has no heading `#there`"), "{found:?}");
        assert!(found[1].contains("which is not there"), "{found:?}");
    }

    #[test]
    fn a_chapter_that_nobody_finds_is_told() {
        let page = |path, text| Page::new(path, text);
        let pages =
            [page("docs/SUMMARY.md", "- [a](a.md)\n- [a](a.md)\n"), page("docs/a.md", ""), page("docs/b.md", "")];
        let found: Vec<_> = check_summary(&pages).into_iter().map(|finding| finding.what).collect();
        assert_eq!(found, ["`a.md` is listed twice", "docs/b.md is in no chapter; add it"]);
    }
}
