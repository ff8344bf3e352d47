//! Checks commands in the docs with the programs' own parsers, to find flags and verbs that were renamed.
//!
//! `qosm` and `cargo xtask` parse their commands with `--help` appended. Targets of `make` are looked up in the Makefile, values of the
//! chart are checked against its schema, and paths into the repository have to exist.

use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command as Process;

use serde_json::Value;

use crate::documents;
use crate::repository::{Programs, Repository};

/// Folders of the repository; a word that begins with one is checked as a path.
const FOLDERS: [&str; 8] = ["benches/", "deploy/", "docs/", "examples/", "policies/", "runtime/", "sdk/", "tools/"];
/// Operators between commands on a line, or behind one.
const BETWEEN: [&str; 6] = ["|", "||", "&&", ";", "&", "||"];
/// Redirections, which are followed by a file.
const REDIRECTIONS: [&str; 6] = [">", ">>", "<", "2>", "2>>", "&>"];

/// A simple shell command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The line on which the command begins, from 0.
    pub line: usize,
    /// The words of the command, without quotes.
    pub words: Vec<String>,
}

/// Splits shell code into simple commands, without redirections, and without assignments and `sudo` before a command.
///
/// # Errors
///
/// The line, from 0, with a quote that is not closed.
pub fn split(shell: &str) -> Result<Vec<Command>, usize> {
    let mut commands = Vec::new();
    let (mut pending, mut begun, mut until): (String, usize, Option<String>) = (String::new(), 0, None);
    for (number, line) in shell.lines().enumerate() {
        if let Some(end) = &until {
            if line.trim() == end {
                until = None;
            }
            continue;
        }
        if pending.is_empty() {
            begun = number;
        }
        if let Some(start) = line.strip_suffix('\\') {
            pending.push_str(start);
            pending.push(' ');
            continue;
        }
        pending.push_str(line);
        // An open quote continues on the next line.
        let Some(words) = shlex::split(&pending) else {
            pending.push('\n');
            continue;
        };
        pending.clear();
        until = words.iter().find_map(|word| word.strip_prefix("<<")).map(|end| end.trim_start_matches('-').to_owned());
        commands.extend(simple(begun, &words));
    }
    if pending.trim().is_empty() { Ok(commands) } else { Err(begun) }
}

/// The simple commands of one line.
fn simple(line: usize, words: &[String]) -> Vec<Command> {
    let mut commands = vec![Vec::new()];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let (word, ends) = match word.strip_suffix(';') {
            Some(word) => (word, true),
            None => (word.as_str(), BETWEEN.contains(&word.as_str())),
        };
        if REDIRECTIONS.contains(&word) {
            words.next();
        } else if !BETWEEN.contains(&word) && !word.starts_with("<<") && !word.is_empty() {
            commands.last_mut().into_iter().for_each(|command: &mut Vec<String>| command.push(word.to_owned()));
        }
        if ends {
            commands.push(Vec::new());
        }
    }
    let mut bare: Vec<Vec<String>> = Vec::new();
    for command in commands {
        let is_before = |word: &&String| {
            let name = word.split_once('=').map(|(name, _)| name);
            let assigns =
                name.is_some_and(|name| name.chars().all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit()));
            assigns || matches!(word.as_str(), "sudo" | "export")
        };
        let before = command.iter().take_while(is_before).count();
        let command: Vec<String> = command.into_iter().skip(before).collect();
        // A command that kubectl runs in a pod is checked too.
        if command.first().is_some_and(|program| program == "kubectl")
            && let Some(at) = command.iter().position(|word| word == "--")
        {
            bare.push(command.iter().skip(at + 1).cloned().collect());
        }
        bare.push(command);
    }
    bare.retain(|command| !command.is_empty());
    bare.into_iter().map(|words| Command { line, words }).collect()
}

/// The checkout and programs against which commands are checked.
pub(crate) struct Audience<'a> {
    pub(crate) repository: &'a Repository,
    pub(crate) programs: &'a Programs,
}

impl Audience<'_> {
    /// Checks that the program accepts a command.
    ///
    /// # Errors
    ///
    /// The error of its parser.
    pub(crate) fn understands(&self, command: &Command) -> Result<(), String> {
        // `…` stands for words that are left out.
        let words: Vec<&str> = command.words.iter().map(String::as_str).filter(|word| *word != "…").collect();
        match words.as_slice() {
            [program, rest @ ..] if Path::new(program).file_name().is_some_and(|name| name == "qosm") => {
                asked(&self.programs.qosm, rest)?;
            }
            [program, rest @ ..] if Path::new(program).file_name().is_some_and(|name| name == "qosm-policy") => {
                asked(&self.programs.qosm_policy, rest)?;
            }
            ["kubectl", "qosm", rest @ ..] => asked_as(&self.programs.qosm, "kubectl-qosm", rest)?,
            ["cargo", "xtask", rest @ ..] => asked(&self.programs.xtask, rest)?,
            ["make", rest @ ..] => self.made(rest)?,
            ["helm", ..] if words.contains(&"deploy/helm/qosm") => self.valued(&words)?,
            [flag, ..] if flag.starts_with("--set") => self.valued(&words)?,
            _ => {}
        }
        for word in &words {
            self.there(word)?;
        }
        Ok(())
    }

    fn made(&self, words: &[&str]) -> Result<(), String> {
        let makefile = self.repository.text("Makefile").map_err(|error| error.to_string())?;
        let is_verb =
            |word: &str| makefile.lines().any(|line| line.strip_prefix(word).is_some_and(|rest| rest.starts_with(':')));
        match words.iter().find(|word| !word.contains('=') && !is_verb(word)) {
            Some(verb) => Err(format!("the Makefile has no `{verb}`")),
            None => Ok(()),
        }
    }

    /// Checks that the chart accepts the values of `--set`.
    fn valued(&self, words: &[&str]) -> Result<(), String> {
        let mut values = Value::Object(serde_json::Map::new());
        let flags = words.windows(2).filter(|pair| matches!(pair, ["--set" | "--set-string" | "--set-json", _]));
        for assignment in flags.filter_map(|pair| pair.last()).flat_map(|value| assignments(value)) {
            let (path, value) =
                assignment.split_once('=').ok_or_else(|| format!("`{assignment}` sets no value: it lacks a `=`"))?;
            let value = match value.strip_prefix('{').and_then(|list| list.strip_suffix('}')) {
                Some(list) => Value::Array(list.split(',').map(scalar).collect()),
                None => scalar(value),
            };
            let nested = path
                .split('.')
                .rev()
                .fold(value, |value, key| Value::Object([(key.to_owned(), value)].into_iter().collect()));
            documents::merge(&mut values, nested);
        }
        documents::values(self.repository, values)
    }

    /// Checks that a word that looks like a path of the repository exists.
    fn there(&self, word: &str) -> Result<(), String> {
        let path = word.trim_start_matches("./").trim_end_matches('/');
        let is_path =
            FOLDERS.iter().any(|folder| path.starts_with(folder)) && !path.contains(['*', '$', '…', '{', '@', ':']);
        if is_path && !self.repository.root().join(path).exists() {
            return Err(format!("{path} is not there"));
        }
        Ok(())
    }
}

/// Splits the value of `--set` into assignments: at commas outside of braces that are not escaped.
fn assignments(value: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut escaped) = (0_u32, false);
    for c in value.chars() {
        match c {
            ',' if depth == 0 && !escaped => {
                parts.push(String::new());
                continue;
            }
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        escaped = c == '\\';
        parts.last_mut().into_iter().for_each(|part| part.push(c));
    }
    parts
}

/// Converts a value of `--set` as Helm does.
fn scalar(text: &str) -> Value {
    match text {
        "true" => Value::Bool(true),
        "false" => Value::Bool(false),
        "null" => Value::Null,
        number => number.parse::<i64>().map_or_else(|_| Value::String(number.to_owned()), Value::from),
    }
}

/// Lets a program parse the words. With `--help` appended it only parses, and it reports words that it does not know.
fn asked(program: &Path, words: &[&str]) -> Result<(), String> {
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    asked_as(program, name, words)
}

/// The same, with another name as `argv[0]`.
fn asked_as(program: &Path, name: &str, words: &[&str]) -> Result<(), String> {
    let output = Process::new(program)
        .arg0(name)
        .args(words)
        .arg("--help")
        .env("NO_COLOR", "1")
        .output()
        .map_err(|error| format!("{} cannot be started: {error}", program.display()))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{}` is not understood: {}", words.join(" "), stderr.lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(shell: &str) -> Vec<Vec<String>> {
        split(shell).unwrap().into_iter().map(|command| command.words).collect()
    }

    #[test]
    fn commands_are_found_wherever_they_stand() {
        for (shell, found) in [
            ("sudo qosm doctor   # what is there", &[&["qosm", "doctor"][..]][..]),
            ("QOSM_LOG=debug qosm get pods > pods.txt", &[&["qosm", "get", "pods"]]),
            ("qosm crds | kubectl apply -f -", &[&["qosm", "crds"], &["kubectl", "apply", "-f", "-"]]),
            ("qosm a \\\n    b\nqosm c; qosm d &", &[&["qosm", "a", "b"], &["qosm", "c"], &["qosm", "d"]]),
            ("qosm x --y '{\n}'", &[&["qosm", "x", "--y", "{\n}"]]),
            ("cat > f <<'EOF'\nqosm no\nEOF\nqosm yes", &[&["cat"], &["qosm", "yes"]]),
            (
                "kubectl exec $A -- qosm doctor",
                &[&["qosm", "doctor"], &["kubectl", "exec", "$A", "--", "qosm", "doctor"]],
            ),
        ] {
            assert_eq!(words(shell), found, "{shell}");
        }
        assert_eq!(split("true\nqosm 'open\n").unwrap_err(), 1);
    }

    #[test]
    fn values_are_split_as_helm_does() {
        assert_eq!(assignments("a.b=1,c={x,y},d=e\\,f"), ["a.b=1", "c={x,y}", "d=e\\,f"]);
        assert_eq!((scalar("true"), scalar("7"), scalar("x")), (Value::Bool(true), Value::from(7), Value::from("x")));
    }
}
