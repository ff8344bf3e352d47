//! The columns of Kubernetes objects and of the cluster ConfigMap, for policies that read them. Computed when the sources change,
//! and shared by all policies.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use qosm_engine::Interface;
use qosm_model::application::{self, Application};
use qosm_model::layering::{ClusterConfig, GoodTexts};
use qosm_model::object::{PodObject, completed};
use qosm_model::pod::Node;
use qosm_model::problem::Problem;
use qosm_model::unit::Bytes;

use crate::applications::Unread;
use crate::policies::Policies;
use crate::policy::Policy;
use crate::sources::Sources;
use crate::table::PodTable;

/// The current columns.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    /// The node, with the machine's CPUs and memory by which it was completed.
    node: Option<(u32, Option<Bytes>, Arc<Node>)>,
    pods: Option<Arc<[PodObject]>>,
    config: Option<Arc<ClusterConfig>>,
    /// The last good texts of an earlier agent, until the cluster ConfigMap is read.
    earlier_texts: GoodTexts,
    /// Problems of the cluster ConfigMap, by key.
    config_problems: Vec<(String, Problem)>,
    /// Applications beside Kubernetes that the cluster ConfigMap names for this node.
    applications: Vec<Application>,
    /// Applications whose cgroups cannot be read.
    unread_applications: Vec<Problem>,
    /// Whether pods may have changed since the column was computed.
    are_pods_stale: bool,
}

impl Objects {
    /// Sets the last good texts of an earlier agent.
    pub(crate) fn begin_with_texts(&mut self, texts: GoodTexts) {
        self.earlier_texts = texts;
    }

    /// The last good texts of the cluster ConfigMap.
    pub(crate) fn good_texts(&self) -> &GoodTexts {
        self.config.as_deref().map_or(&self.earlier_texts, ClusterConfig::good_texts)
    }

    /// Takes sources that have changed. Returns the columns that changed and that no other notification covers.
    pub(crate) fn update(&mut self, before: &Sources, now: &Sources) -> Vec<Interface> {
        let mut changed = Vec::new();
        self.are_pods_stale = true;
        if before.node != now.node {
            self.node = None;
            changed.push(Interface::NodeObject);
        }
        if self.config.is_none() || before.config_maps != now.config_maps || before.node.labels != now.node.labels {
            let (config, mut problems) = ClusterConfig::read(&now.config_maps, &now.node, Some(self.good_texts()));
            let text = config.get(application::KEY).map_or("", |key| &key.text);
            let (applications, wrong) = Application::read(text, &now.node.labels);
            problems.extend(wrong.into_iter().map(|(field, message)| {
                let field = format!("{}.{field}", application::KEY);
                (application::KEY.to_owned(), applications_problem(&config, field, message))
            }));
            self.applications = applications;
            self.config_problems = problems;
            if self.config.as_deref() != Some(&config) {
                self.config = Some(Arc::new(config));
                changed.push(Interface::ClusterConfig);
            }
        }
        changed
    }

    /// The node; what its object does not state is filled in from the machine.
    pub(crate) fn node(&mut self, node: &Node, cpus: u32, memory: Option<Bytes>) -> Arc<Node> {
        match &self.node {
            // Memory that cannot be read at the moment counts as unchanged.
            Some((of, had, known)) if *of == cpus && (memory.is_none() || *had == memory) => Arc::clone(known),
            _ => {
                let node = Arc::new(completed(node, cpus, memory));
                self.node = Some((cpus, memory, Arc::clone(&node)));
                node
            }
        }
    }

    /// All pods, as policies see them.
    pub(crate) fn pods(&mut self, pods: &PodTable) -> Arc<[PodObject]> {
        if let Some(known) = self.pods.as_ref().filter(|_| !self.are_pods_stale) {
            return Arc::clone(known);
        }
        let column: Arc<[PodObject]> = pods.iter().map(|entry| PodObject::of(entry.id, &entry.view)).collect();
        let column = self.pods.take().filter(|known| *known == column).unwrap_or(column);
        self.are_pods_stale = false;
        self.pods = Some(Arc::clone(&column));
        column
    }

    /// The cluster ConfigMap.
    pub(crate) fn config(&self) -> Arc<ClusterConfig> {
        self.config.clone().unwrap_or_default()
    }

    /// Applications beside Kubernetes that the cluster ConfigMap names for this node.
    pub(crate) fn applications(&self) -> &[Application] {
        &self.applications
    }

    /// Sets the applications whose cgroups cannot be read. Returns `true` if they are others than before.
    pub(crate) fn set_unread_applications(&mut self, unread: &[Unread]) -> bool {
        let config = self.config();
        let problem = |Unread { name, cgroup, why }: &Unread| {
            let message = format!(
                "the cgroup {cgroup} of {name} cannot be read ({why}); what it uses counts as the system's, start it or correct its cgroupPath"
            );
            applications_problem(&config, application::KEY.to_owned(), message)
        };
        let problems: Vec<Problem> = unread.iter().map(problem).collect();
        let is_changed = problems != self.unread_applications;
        self.unread_applications = problems;
        is_changed
    }

    /// Problems that a policy found in keys of the cluster ConfigMap.
    pub(crate) fn key_problems(&self, policy: &Policy) -> impl Iterator<Item = Problem> {
        let none = ClusterConfig::default();
        let config = self.config.as_deref().unwrap_or(&none);
        let problems: Vec<_> =
            policy.key_problems.iter().map(|problem| config.problem(policy.name(), problem)).collect();
        problems.into_iter()
    }

    /// Problems of the cluster ConfigMap, if a policy reads it, without keys whose problems a policy's own protocol already reports.
    pub(crate) fn problems(&self, policies: &Policies) -> impl Iterator<Item = &Problem> {
        let is_read = policies.active().any(|policy| policy.imports(Interface::ClusterConfig));
        let is_reported = |key: &str| {
            policies.active().any(|policy| {
                let protocol = policy.description.protocol.as_ref();
                protocol.is_some_and(|protocol| protocol.config_map_key.as_deref() == Some(key))
            })
        };
        // A misspelt key has an empty name here: no policy reads it.
        let counts = move |key: &str| key.is_empty() || (is_read && !is_reported(key));
        let problems = self.config_problems.iter().filter(move |(key, _)| counts(key));
        problems.map(|(_, problem)| problem).chain(&self.unread_applications)
    }
}

/// A problem of the list of applications.
fn applications_problem(config: &ClusterConfig, field: String, message: String) -> Problem {
    let object = format!("ConfigMap {}", config.map_of(application::KEY).unwrap_or_default());
    Problem { object, field: Some(field), message }
}
