//! What an info string says about how its block is held true.

/// How a block is held true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Annotation {
    /// `rust`: compiled and run as a doctest.
    Rust,
    /// `console,run`: each command after `$ ` is run, and prints what stands beneath it. The blocks of a page are one session.
    Session,
    /// `sh,run`: run in the same session; it has to end well, whatever it prints. Also `<!-- sh,run: COMMAND -->`, which readers do not see.
    Script,
    /// `sh,needs=WHAT` and `console,needs=WHAT`: not run here, but the commands must be understood.
    Commands(Needs),
    /// `yaml,KIND` and `json,KIND`: read by the parser that it is written for.
    Document(Document),
    /// `toml,cargo`: the parts of a Cargo.toml.
    CargoToml,
    /// `ini,systemd`: a unit, whose commands must be understood.
    Systemd,
    /// `rego`: checked and formatted as `opa` has it.
    Rego,
    /// `LANGUAGE,of=PATH` (`rs,of=PATH` for Rust): these lines stand in that file, with `…` for lines that are left out.
    Excerpt(String),
    /// `text,message`: each line stands in the program's source, with `…` for what changes.
    Message,
    /// `text`: a drawing or a formula.
    Text,
}

/// What a block's commands need beyond a checkout and the programs that it builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// A Kubernetes cluster.
    Cluster,
    /// Root on a Linux host.
    Root,
    /// A container registry.
    Registry,
    /// Minutes: compilers, downloads.
    Build,
    /// A program that is not ours.
    Tool,
}

/// What is written in YAML or JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// `agent`: the agent's own file.
    Agent,
    /// `registries`: what is known about registries, in a file of its own.
    Registries,
    /// `manifest`: Kubernetes objects.
    Manifest,
    /// `pod-metadata`: the metadata of a pod.
    PodMetadata,
    /// `annotation=KEY`: the value of a pod's annotation.
    Annotation(String),
    /// `key=KEY`: the value of a key of the cluster's ConfigMap.
    Key(String),
    /// `config=POLICY`: the configuration of a default policy.
    Config(String),
    /// `values`: values of the chart.
    Values,
    /// `facts`: a node in a file.
    Facts,
    /// `tick`: a line of a recording.
    Tick,
    /// `document`: well-formed, and no more than that.
    Any,
}

/// A block that does not say how it is held true.
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
    /// Reads an info string.
    ///
    /// # Errors
    ///
    /// [`Unannotated`] unless it is one of the forms above.
    pub fn parse(info: &str) -> Result<Self, Unannotated> {
        let unannotated = || Unannotated { info: info.to_owned() };
        let words: Vec<&str> = info.split(',').map(str::trim).collect();
        let (language, words) = words.split_first().ok_or_else(unannotated)?;
        let annotation = match (*language, words) {
            ("rust", []) => Some(Self::Rust),
            // Whatever else is said beside it, rustdoc takes it for a test; an excerpt is `rs`.
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
