//! Parses a Markdown page into code blocks, links and headings.

use std::collections::BTreeMap;

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A Markdown page.
#[derive(Clone, Debug)]
pub struct Page {
    /// Path from the repository's root, with `/`.
    pub path: String,
    /// The code blocks, from top to bottom.
    pub blocks: Vec<Block>,
    /// The links and images.
    pub links: Vec<Link>,
    /// Targets of links: the headings, as GitHub and mdBook convert them to anchors, and the `id`s of HTML elements.
    pub anchors: Vec<String>,
    /// The text of each inline code span.
    pub spans: Vec<String>,
    /// The whole text.
    pub text: String,
}

/// A code block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The line on which the block begins, from 1.
    pub line: usize,
    /// How the block is delimited.
    pub fence: Fence,
    /// The content of the block.
    pub text: String,
}

/// How a code block is delimited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Between fences, with this info string.
    Info(String),
    /// By an indent of four spaces, which allows no info string.
    Indent,
}

/// A link, or an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The line on which the link begins, from 1.
    pub line: usize,
    /// The target.
    pub to: String,
}

impl Page {
    /// Parses a page.
    pub fn new(path: &str, text: &str) -> Self {
        let mut page = Self {
            path: path.to_owned(),
            blocks: Vec::new(),
            links: Vec::new(),
            anchors: Vec::new(),
            spans: Vec::new(),
            text: text.to_owned(),
        };
        let line_of = |offset: usize| text.get(..offset).map_or(1, |before| before.matches('\n').count() + 1);
        let (mut block, mut heading): (Option<Block>, Option<String>) = (None, None);
        let mut seen = BTreeMap::new();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(kind)) => {
                    let fence = match kind {
                        CodeBlockKind::Fenced(info) => Fence::Info(info.to_string()),
                        CodeBlockKind::Indented => Fence::Indent,
                    };
                    block = Some(Block { line: line_of(range.start), fence, text: String::new() });
                }
                Event::End(TagEnd::CodeBlock) => page.blocks.extend(block.take()),
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    page.anchors.extend(heading.take().map(|text| numbered(&mut seen, anchor(&text))));
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push(Link { line: line_of(range.start), to: dest_url.to_string() });
                }
                Event::Text(text) => {
                    if let Some(block) = &mut block {
                        block.text.push_str(&text);
                    } else if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::Code(code) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&code);
                    }
                    page.spans.push(code.to_string());
                }
                Event::Html(html) | Event::InlineHtml(html) => {
                    page.blocks.extend(unseen(&html).map(|step| Block { line: line_of(range.start), ..step }));
                    page.anchors.extend(ids(&html));
                }
                _ => {}
            }
        }
        page
    }

    /// The part of a page below a heading, up to the next one of the same or a higher rank; `None` if there is no such heading.
    pub fn section(&self, heading: &str) -> Option<&str> {
        let rank_of = |line: &str| line.chars().take_while(|&c| c == '#').count();
        let is_it = |line: &str| rank_of(line) > 0 && line.trim_start_matches('#').trim() == heading;
        let (mut start, mut end, mut rank, mut at) = (None, self.text.len(), 0, 0);
        let mut in_fence = false;
        for line in self.text.split_inclusive('\n') {
            in_fence ^= line.starts_with("```");
            // Within a fence, a `#` begins a comment.
            if start.is_none() && !in_fence && is_it(line) {
                (start, rank) = (Some(at + line.len()), rank_of(line));
            } else if start.is_some() && !in_fence && (1..=rank).contains(&rank_of(line)) {
                end = at;
                break;
            }
            at += line.len();
        }
        self.text.get(start?..end)
    }
}

/// The anchor of a heading: lower case letters, digits, hyphens and underscores; spaces become hyphens, other characters are dropped.
fn anchor(heading: &str) -> String {
    let keep = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    };
    heading.trim().to_lowercase().chars().filter_map(keep).collect()
}

/// Appends a number to the anchor of a repeated heading.
fn numbered(seen: &mut BTreeMap<String, usize>, anchor: String) -> String {
    let times = seen.entry(anchor.clone()).or_insert(0);
    *times += 1;
    if *times == 1 { anchor } else { format!("{anchor}-{}", *times - 1) }
}

/// A step of the session that readers do not see, because only the test needs it: `<!-- sh,run: COMMAND -->`.
fn unseen(html: &str) -> Option<Block> {
    const MARK: &str = "sh,run";
    let command =
        html.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim().strip_prefix(MARK)?.strip_prefix(':')?;
    Some(Block { line: 0, fence: Fence::Info(MARK.to_owned()), text: command.trim().to_owned() })
}

/// The `id`s in a piece of HTML.
fn ids(html: &str) -> impl Iterator<Item = String> + '_ {
    html.split("id=\"").skip(1).filter_map(|rest| rest.split_once('"')).map(|(id, _)| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A `b` page: more\n\nSee [here](x.md#y).\n\n```console,run\n$ true\n```\n\n## Again\n\n    indented\n\n## Again\n\nlast\n\n# Next\n";

    #[test]
    fn a_page_is_taken_apart_with_the_lines_of_its_parts() {
        let page = Page::new("a.md", PAGE);
        assert_eq!(page.anchors, ["a-b-page-more", "again", "again-1", "next"]);
        assert_eq!(page.links, [Link { line: 3, to: "x.md#y".into() }]);
        let blocks = [
            Block { line: 5, fence: Fence::Info("console,run".into()), text: "$ true\n".into() },
            Block { line: 11, fence: Fence::Indent, text: "indented\n".into() },
        ];
        assert_eq!(page.blocks, blocks);
    }

    #[test]
    fn a_comment_may_be_a_step_that_nobody_sees() {
        let page = Page::new("a.md", "# A\n\n<!-- sh,run: mkdir b -->\n\n<!-- a remark -->\n");
        assert_eq!(page.blocks, [Block { line: 3, fence: Fence::Info("sh,run".into()), text: "mkdir b".into() }]);
    }

    #[test]
    fn a_section_ends_where_one_of_its_rank_begins() {
        let page = Page::new("a.md", PAGE);
        assert_eq!(page.section("Again"), Some("\n    indented\n\n"));
        assert_eq!(page.section("Next"), Some(""));
        assert_eq!(page.section("None"), None);
    }

    #[test]
    fn a_comment_in_a_code_block_is_no_heading() {
        let page = Page::new("a.md", "# First\n\n```sh\n# Next\ntrue\n```\n\n# Next\n\nlast\n");
        assert_eq!(page.section("First"), Some("\n```sh\n# Next\ntrue\n```\n\n"));
        assert_eq!(page.section("Next"), Some("\nlast\n"));
    }
}
