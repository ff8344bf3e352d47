//! Parses the info string of a code block, which says how the block is checked.

/// How a code block is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// `rust`: compiled and run as a doctest.
    Rust,
    /// `console,run`: each command after `$ ` is run, and has to print the lines below it. The blocks of a page share one session.
    Session,
    /// `sh,run`: run in the same session; it has to exit with 0, whatever it prints. Also `<!-- sh,run: COMMAND -->`, which readers do not
    /// see.
    Script,
    /// `sh,needs=WHAT` and `console,needs=WHAT`: not run here, but the programs' parsers have to accept the commands.
    Commands(Needs),
    /// `yaml,KIND` and `json,KIND`: read by the parser of that kind of document.
    Document(Document),
    /// `toml,cargo`: parts of a Cargo.toml.
    CargoToml,
    /// `ini,systemd`: a unit, whose commands the programs' parsers have to accept.
    Systemd,
    /// `rego`: `opa` checks the block and its format.
    Rego,
    /// `LANGUAGE,of=PATH` (`rs,of=PATH` for Rust): an excerpt of that file, with `…` for lines that are left out.
    Excerpt(String),
    /// `text,message`: each line occurs in the program's source, with `…` for parts that vary.
    Message,
    /// `text`: a drawing or a formula, which is not checked.
    Text,
}

/// What the commands of a block need besides a checkout and the programs built from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A Kubernetes cluster.
    Cluster,
    /// Root on a Linux host.
    Root,
    /// A container registry.
    Registry,
    /// Minutes, for compilers and downloads.
    Build,
    /// A program of another project.
    Tool,
}

/// The kind of a YAML or JSON document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// `agent`: the agent's configuration file.
    Agent,
    /// `registries`: settings of registries, in a file of their own.
    Registries,
    /// `manifest`: Kubernetes objects.
    Manifest,
    /// `pod-metadata`: the `metadata` of a pod.
    PodMetadata,
    /// `annotation=KEY`: the value of this pod annotation.
    Annotation(String),
    /// `key=KEY`: the value of this key of the cluster's ConfigMap.
    Key(String),
    /// `config=POLICY`: the policy-level configuration of a default policy.
    Config(String),
    /// `values`: values of the Helm chart.
    Values,
    /// `facts`: a node in a file, as `qosm plan` reads it.
    Facts,
    /// `tick`: a line of a recording.
    Tick,
    /// `document`: only has to be well-formed.
    Any,
}

/// A block whose info string is not an annotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unannotated {
    info: String,
}

impl std::fmt::Display for Unannotated {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "`{}` does not say how this block is held true; write one of `rust`, `console,run`, `sh,run`, \
             `sh,needs=cluster|root|registry|build|tool`, `yaml,agent|registries|manifest|pod-metadata|values|facts|tick|\
             annotation=KEY|key=KEY|config=POLICY|document` (or `json,…`), `toml,cargo`, `ini,systemd`, `rego`, \
             `LANGUAGE,of=PATH` (`rs,of=PATH` for Rust), `text,message`, `text`",
            self.info
        )
    }
}

impl Annotation {
    /// Parses an info string.
    ///
    /// # Errors
    ///
    /// [`Unannotated`] if it is none of the forms of [`Annotation`].
    pub fn parse(info: &str) -> Result<Self, Unannotated> {
        let unannotated = || Unannotated { info: info.to_owned() };
        let words: Vec<&str> = info.split(',').map(str::trim).collect();
        let (language, words) = words.split_first().ok_or_else(unannotated)?;
        let annotation = match (*language, words) {
            ("rust", []) => Some(Self::Rust),
            // rustdoc compiles every block with `rust` as a test, whatever follows; use `rs` for an excerpt.
            ("rust", _) => None,
            ("console", ["run"]) => Some(Self::Session),
            ("sh", ["run"]) => Some(Self::Script),
            ("toml", ["cargo"]) => Some(Self::CargoToml),
            ("ini", ["systemd"]) => Some(Self::Systemd),
            ("rego", []) => Some(Self::Rego),
            ("text", []) => Some(Self::Text),
            ("text", ["message"]) => Some(Self::Message),
            (language, [mark]) => match mark.split_once('=') {
                Some(("of", path)) => Some(Self::Excerpt(path.to_owned())),
                Some(("needs", what)) if matches!(language, "console" | "sh") => Needs::parse(what).map(Self::Commands),
                _ if matches!(language, "yaml" | "json") => Document::parse(mark).map(Self::Document),
                _ => None,
            },
            _ => None,
        };
        annotation.ok_or_else(unannotated)
    }
}

impl Needs {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "cluster" => Self::Cluster,
            "root" => Self::Root,
            "registry" => Self::Registry,
            "build" => Self::Build,
            "tool" => Self::Tool,
            _ => return None,
        })
    }
}

impl Document {
    fn parse(mark: &str) -> Option<Self> {
        Some(match mark.split_once('=') {
            Some(("annotation", key)) => Self::Annotation(key.to_owned()),
            Some(("key", key)) => Self::Key(key.to_owned()),
            Some(("config", policy)) => Self::Config(policy.to_owned()),
            Some(_) => return None,
            None => match mark {
                "agent" => Self::Agent,
                "registries" => Self::Registries,
                "manifest" => Self::Manifest,
                "pod-metadata" => Self::PodMetadata,
                "values" => Self::Values,
                "facts" => Self::Facts,
                "tick" => Self::Tick,
                "document" => Self::Any,
                _ => return None,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_info_string_says_how_a_block_is_held_true() {
        for (info, annotation) in [
            ("rust", Annotation::Rust),
            ("console, run", Annotation::Session),
            ("sh,needs=cluster", Annotation::Commands(Needs::Cluster)),
            ("yaml,agent", Annotation::Document(Document::Agent)),
            (
                "json,annotation=koordinator.sh/cpuBurst",
                Annotation::Document(Document::Annotation("koordinator.sh/cpuBurst".into())),
            ),
            ("go,of=examples/go/main.go", Annotation::Excerpt("examples/go/main.go".into())),
            ("yaml,of=a.yaml", Annotation::Excerpt("a.yaml".into())),
        ] {
            assert_eq!(Annotation::parse(info), Ok(annotation), "{info}");
        }
    }

    #[test]
    fn whatever_else_is_said_holds_nothing_true() {
        for info in [
            "",
            "sh",
            "bash",
            "yaml",
            "yaml,agents",
            "rust,ignore",
            "rust,of=a.rs",
            "console",
            "text,needs=root",
            "sh,needs=luck",
        ] {
            assert!(Annotation::parse(info).is_err(), "{info}");
        }
    }
}
