//! Checks each block by its annotation.

use std::io;
use std::process::Command as Process;

use crate::annotation::Annotation;
use crate::commands::{self, Audience, Command};
use crate::messages::Messages;
use crate::page::{Block, Fence, Page};
use crate::repository::{Programs, Repository};
use crate::session::{self, Step};
use crate::{Finding, documents};

/// Checks pages against the programs that they describe.
#[derive(Debug)]
pub struct Checker {
    repository: Repository,
    programs: Programs,
    messages: Messages,
}

impl Checker {
    /// A checker for this checkout and the programs built from it.
    ///
    /// # Errors
    ///
    /// If a source file cannot be read.
    pub fn new(repository: Repository, programs: Programs) -> io::Result<Self> {
        let messages = Messages::read(&repository)?;
        Ok(Self { repository, programs, messages })
    }

    /// The findings of a page.
    pub fn check(&self, page: &Page) -> Vec<Finding> {
        let mut findings = Vec::new();
        let mut report = |line, what| findings.push(Finding { page: page.path.clone(), line, what });
        let mut session = Vec::new();
        for block in &page.blocks {
            let annotation = match &block.fence {
                Fence::Info(info) => Annotation::parse(info),
                Fence::Indent => {
                    self.indented(page, block).into_iter().for_each(|(line, what)| report(line, what));
                    continue;
                }
            };
            match annotation {
                Err(unannotated) => report(block.line, unannotated.to_string()),
                Ok(Annotation::Session) => match session::steps(block.line + 1, &block.text) {
                    Ok(steps) => session.extend(steps),
                    Err(line) => report(block.line + 1 + line, "there is no `$ ` before this line".to_owned()),
                },
                Ok(Annotation::Script) => {
                    session.push(Step { line: block.line + 1, command: block.text.clone(), expected: None });
                }
                Ok(annotation) => self.held(&annotation, block).into_iter().for_each(|(line, what)| report(line, what)),
            }
        }
        self.played(&session).into_iter().for_each(|(line, what)| report(line, what));
        findings
    }

    /// Checks a block that is not run. rustdoc compiles the Rust blocks.
    fn held(&self, annotation: &Annotation, block: &Block) -> Vec<(usize, String)> {
        let whole = |checked: Result<(), String>| checked.err().map(|what| (block.line, what)).into_iter().collect();
        match annotation {
            Annotation::Rust | Annotation::Text | Annotation::Session | Annotation::Script => Vec::new(),
            Annotation::Commands(_) => self.understood(block.line + 1, &typed(&block.text)),
            Annotation::Document(kind) => whole(documents::check(&self.repository, &self.programs, kind, &block.text)),
            Annotation::CargoToml => whole(cargo_toml(&block.text)),
            Annotation::Systemd => {
                let commands: String = block
                    .text
                    .lines()
                    .map(|line| match line.split_once('=') {
                        Some((key, command)) if key.starts_with("Exec") => format!("{command}\n"),
                        _ => "\n".to_owned(),
                    })
                    .collect();
                self.understood(block.line + 1, &commands)
            }
            Annotation::Rego => whole(rego(&block.text)),
            Annotation::Excerpt(path) => whole(self.excerpt(path, &block.text)),
            Annotation::Message => {
                let lines = (1..).zip(block.text.lines());
                lines
                    .filter_map(|(number, line)| {
                        let piece = self.messages.unsaid(line)?;
                        Some((block.line + number, format!("nothing in the sources says `{piece}`")))
                    })
                    .collect()
            }
        }
    }

    /// Checks an indented block, which has no info string: the book must have none; elsewhere, qosm's own commands in it have to be valid.
    fn indented(&self, page: &Page, block: &Block) -> Vec<(usize, String)> {
        if page.path.starts_with("docs/") {
            return vec![(block.line, "set this block off by fences, and say how it is held true".to_owned())];
        }
        let ours = ["qosm ", "sudo qosm ", "make ", "cargo xtask ", "helm ", "kubectl "];
        let is_ours = |line: &str| ours.iter().any(|start| line.trim_start().starts_with(start));
        let goes_on = |line: &str| line.ends_with('\\');
        let (mut shell, mut inside) = (String::new(), false);
        for line in block.text.lines() {
            let keep = inside || is_ours(line);
            inside = keep && goes_on(line);
            shell.push_str(if keep { line } else { "" });
            shell.push('\n');
        }
        self.understood(block.line, &shell)
    }

    fn understood(&self, first_line: usize, shell: &str) -> Vec<(usize, String)> {
        let audience = Audience { repository: &self.repository, programs: &self.programs };
        let misunderstood = |command: &Command| Some((first_line + command.line, audience.understands(command).err()?));
        match commands::split(shell) {
            Ok(commands) => commands.iter().filter_map(misunderstood).collect(),
            Err(line) => vec![(first_line + line, "a quote that is opened here is not closed".to_owned())],
        }
    }

    fn excerpt(&self, path: &str, text: &str) -> Result<(), String> {
        let file = self.repository.text(path).map_err(|error| error.to_string())?;
        let (file, text, mut from) = (bare(&file), bare(text), 0);
        // `…` on a line of its own stands for any lines.
        for part in text.split(|line| line.trim_start_matches(['/', '#', ' ']) == "…") {
            let rest = file.get(from..).unwrap_or_default();
            let at = if part.is_empty() { Some(0) } else { rest.windows(part.len()).position(|lines| lines == part) };
            let at = at.ok_or_else(|| {
                format!("these lines do not stand in {path}, from `{}` on", part.first().unwrap_or(&""))
            })?;
            from += at + part.len();
        }
        Ok(())
    }

    fn played(&self, steps: &[Step]) -> Vec<(usize, String)> {
        if steps.is_empty() {
            return Vec::new();
        }
        let outcomes = match session::play(&self.repository, &self.programs, steps) {
            Ok(outcomes) => outcomes,
            Err(error) => return vec![(1, format!("the commands of this page cannot be run: {error}"))],
        };
        let judged = steps.iter().zip(outcomes).filter_map(|(step, outcome)| {
            let printed = &outcome.printed;
            let what = match outcome.status {
                None => format!("`{}` was not come to, or did not end:\n{printed}", step.command),
                Some(status) if status != 0 => format!("`{}` ended with {status}:\n{printed}", step.command),
                Some(_) => {
                    let expected = step.expected.as_deref().filter(|expected| !session::matches(expected, printed))?;
                    format!("`{}` was to print\n{expected}and printed\n{printed}", step.command)
                }
            };
            Some((step.line, what))
        });
        judged.collect()
    }
}

/// Lines without indentation, and without empty lines.
fn bare(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// The input in a block: the text after prompts if there are any, else all of it. Line numbers are kept.
fn typed(text: &str) -> String {
    if !text.lines().any(|line| line.starts_with("$ ")) {
        return text.to_owned();
    }
    let typed =
        |line: &str| line.strip_prefix("$ ").or_else(|| line.strip_prefix("> ")).unwrap_or_default().to_owned() + "\n";
    text.lines().map(typed).collect()
}

/// Whether the text has the tables of a manifest. Where the manifest is built, cargo checks the rest.
fn cargo_toml(text: &str) -> Result<(), String> {
    const TABLES: [&str; 6] =
        ["[package]", "[lib]", "[dependencies]", "[dev-dependencies]", "[profile.release]", "[workspace]"];
    let header = |line: &&str| line.starts_with('[');
    match text.lines().filter(header).find(|line| !TABLES.contains(line)) {
        Some(line) => Err(format!("`{line}` is no table of a policy's Cargo.toml")),
        None => Ok(()),
    }
}

/// Whether `opa` accepts the text and its format.
fn rego(text: &str) -> Result<(), String> {
    let failed = |error: io::Error| format!("`opa` cannot be run: {error}");
    let folder = tempfile::tempdir().map_err(failed)?;
    let file = folder.path().join("block.rego");
    std::fs::write(&file, text).map_err(failed)?;
    for arguments in [&["check", "--v1-compatible"][..], &["fmt", "--fail", "--diff"]] {
        let output = Process::new("opa").args(arguments).arg(&file).output().map_err(failed)?;
        if !output.status.success() {
            let all = [output.stdout, output.stderr].concat();
            return Err(format!("`opa {}`: {}", arguments.join(" "), String::from_utf8_lossy(&all).trim()));
        }
    }
    Ok(())
}
