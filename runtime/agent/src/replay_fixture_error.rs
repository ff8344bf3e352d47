//! Errors in facts or lines.

use qosm_host::HostError;
use qosm_model::pod::Pod;
use qosm_model::problem::Problem;

/// Why facts or lines do not fit the simulated node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayFixtureError {
    /// A field of the facts is invalid.
    #[error("host.{field}: {message}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// What is wrong, and what to write.
        message: String,
    },
    /// A pod, container or tier that does not exist.
    #[error("{place}: there is no {what}; known are: {known}")]
    Unknown {
        /// Where it is named.
        place: &'static str,
        /// What is named.
        what: String,
        /// The names that exist.
        known: String,
    },
    /// Something that does not exist, while objects have problems: it may be one that could not be read.
    #[error("{error}")]
    UnknownAmongProblems {
        /// The unknown thing.
        error: Box<Self>,
        /// The problems.
        source: ObjectProblems,
    },
    /// A pod or container that exists, but has no cgroup.
    #[error("{place}: {what} {why}, so it has no cgroup: {way_out}")]
    NoCgroup {
        /// Where it is named.
        place: &'static str,
        /// What is named.
        what: String,
        /// Why it has none.
        why: &'static str,
        /// What to write instead.
        way_out: &'static str,
    },
    /// A file that cannot have these contents.
    #[error("cgroups: {what}: file {file} cannot hold `{contents}`")]
    File {
        /// Name of the cgroup.
        what: String,
        /// Name of the file.
        file: String,
        /// The contents that it cannot have.
        contents: String,
        /// The reason.
        source: std::io::Error,
    },
    /// A pod's cgroups cannot be made, for another reason than a limit that the kernel refuses.
    #[error("the cgroups of pod {pod} cannot be made")]
    Provision {
        /// `namespace/name`.
        pod: String,
        /// The reason.
        source: Box<HostError>,
    },
    /// The simulation did not start.
    #[error("the host cannot be simulated")]
    Host(#[from] HostError),
}

/// What was wrong with the objects that were read.
#[derive(Debug, thiserror::Error)]
#[error("objects have problems: {0}")]
pub struct ObjectProblems(String);

impl ReplayFixtureError {
    /// Adds the problems of the objects, if something is unknown.
    pub(crate) fn among(self, problems: &[Problem]) -> Self {
        match self {
            Self::Unknown { .. } if !problems.is_empty() => {
                let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
                Self::UnknownAmongProblems { error: Box::new(self), source: ObjectProblems(all.join("; also ")) }
            }
            _ => self,
        }
    }

    pub(crate) fn unknown_pod(place: &'static str, key: &str, pods: &[Pod]) -> Self {
        let known = pods.iter().map(Pod::key).collect::<Vec<_>>().join(", ");
        let known = if known.is_empty() { "none".to_owned() } else { known };
        Self::Unknown { place, what: format!("pod `{key}`"), known }
    }

    pub(crate) fn unknown_container(place: &'static str, name: &str, pod: &Pod) -> Self {
        let known = pod.containers.iter().map(|container| container.name.as_str()).collect::<Vec<_>>().join(", ");
        Self::Unknown { place, what: format!("container `{name}` of pod `{}`", pod.key()), known }
    }
}
