//! Scripted tasks, which fork and exit at chosen moments.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Credentials, Moment, Task, Tasks, Tid};

/// Tasks of a script. Clones are handles on the same script: the tree has one, the test another.
///
/// ```
/// use qosm_resctrl_fuse::tasks::{Scripted, Step, Tid};
/// use qosm_resctrl_fuse::{Profile, Tree, Writer};
///
/// let script = Scripted::new([10]);
/// let mut tree = Tree::new(Profile::intel(), script.clone())?;
/// tree.mkdir("be", Writer::ROOT)?;
/// // Right after a client has read the root's tasks, 10 forks: the child is not moved with it.
/// script.after_read("", [Step::Clone { creator: Tid(10), tid: Tid(11) }]);
/// tree.read("tasks")?;
/// tree.write("be/tasks", b"10\n", Writer::ROOT)?;
/// assert_eq!(tree.read("tasks")?, b"11\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Scripted(Arc<Mutex<Script>>);

/// An event of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A task creates another one, a thread or a process.
    Clone {
        /// Its parent.
        creator: Tid,
        /// The new task. An id in use then belongs to the new task.
        tid: Tid,
    },
    /// A task ends.
    Exit(Tid),
}

#[derive(Debug, Default)]
struct Script {
    tasks: BTreeMap<Tid, (Task, Credentials)>,
    after_read: BTreeMap<String, VecDeque<Vec<Step>>>,
    before_write: BTreeMap<String, VecDeque<Vec<Step>>>,
    clock: u64,
}

impl Scripted {
    /// Creates tasks of root with these ids, without a creator.
    pub fn new(tids: impl IntoIterator<Item = u32>) -> Self {
        let script = Self::default();
        for tid in tids {
            script.script().add(Tid(tid), None, Credentials { uid: 0, saved_uid: 0 });
        }
        script
    }

    /// Adds a task of another user, without a creator.
    pub fn add(&self, tid: Tid, credentials: Credentials) {
        self.script().add(tid, None, credentials);
    }

    /// Performs a step now.
    pub fn step(&self, step: Step) {
        self.script().step(step);
    }

    /// Schedules steps right after the next read of a group's `tasks`. Each further call schedules steps for the read after that.
    pub fn after_read(&self, group: &str, steps: impl Into<Vec<Step>>) {
        self.script().after_read.entry(group.to_owned()).or_default().push_back(steps.into());
    }

    /// Schedules steps right before the next write to a group's `tasks`. Each further call schedules steps for the write after that.
    pub fn before_write(&self, group: &str, steps: impl Into<Vec<Step>>) {
        self.script().before_write.entry(group.to_owned()).or_default().push_back(steps.into());
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        // A panic while the script was locked does not matter: each change is one call.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Script {
    fn add(&mut self, tid: Tid, creator: Option<Tid>, credentials: Credentials) {
        self.clock += 1;
        self.tasks.insert(tid, (Task { tid, creator, started: self.clock }, credentials));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Clone { creator, tid } => {
                let root = Credentials { uid: 0, saved_uid: 0 };
                let credentials = self.tasks.get(&creator).map_or(root, |(_, credentials)| *credentials);
                self.add(tid, Some(creator), credentials);
            }
            Step::Exit(tid) => {
                self.tasks.remove(&tid);
            }
        }
    }
}

impl Tasks for Scripted {
    fn list(&mut self) -> Vec<Task> {
        self.script().tasks.values().map(|(task, _)| *task).collect()
    }

    fn credentials(&mut self, tid: Tid) -> Option<Credentials> {
        self.script().tasks.get(&tid).map(|(_, credentials)| *credentials)
    }

    fn at(&mut self, moment: Moment<'_>) {
        let mut script = self.script();
        let steps = match moment {
            Moment::Read(group) => script.after_read.get_mut(group).and_then(VecDeque::pop_front),
            Moment::Write(group) => script.before_write.get_mut(group).and_then(VecDeque::pop_front),
        };
        for step in steps.unwrap_or_default() {
            script.step(step);
        }
    }
}
