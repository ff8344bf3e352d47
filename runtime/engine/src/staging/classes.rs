//! The classes that an instance has defined, and their members.

use std::collections::{HashMap, HashSet};

use qosm_model::knob::Target;
use qosm_model::resctrl::ClassName;

/// The classes of an instance. A new instance has none, as it holds no knob: the caller releases the predecessor's
/// classes that the new instance does not define.
#[derive(Default)]
pub(super) struct StagedClasses {
    defined: HashSet<ClassName>,
    members: HashMap<Target, ClassName>,
    /// Operations that undo the changes of this call, the latest change last.
    undo: Vec<Undo>,
}

enum Undo {
    Forget(ClassName),
    Define(ClassName),
    Put(Target, Option<ClassName>),
}

impl StagedClasses {
    pub(super) fn len(&self) -> usize {
        self.defined.len()
    }

    pub(super) fn contains(&self, class: &ClassName) -> bool {
        self.defined.contains(class)
    }

    /// The class that a pod or container is in.
    pub(super) fn of(&self, target: Target) -> Option<&ClassName> {
        self.members.get(&target)
    }

    pub(super) fn define(&mut self, class: ClassName) {
        if self.defined.insert(class.clone()) {
            self.undo.push(Undo::Forget(class));
        }
    }

    /// Removes a class; its members are then in no class.
    pub(super) fn undefine(&mut self, class: &ClassName) {
        if let Some(class) = self.defined.take(class) {
            let members = self.members.extract_if(|_, own| *own == class);
            self.undo.extend(members.map(|(target, own)| Undo::Put(target, Some(own))));
            self.undo.push(Undo::Define(class));
        }
    }

    pub(super) fn assign(&mut self, target: Target, class: ClassName) {
        let before = self.members.insert(target, class);
        self.undo.push(Undo::Put(target, before));
    }

    pub(super) fn release(&mut self, target: Target) {
        if let Some(class) = self.members.remove(&target) {
            self.undo.push(Undo::Put(target, Some(class)));
        }
    }

    /// Drops a pod or container that is gone; called between calls.
    pub(super) fn forget(&mut self, target: Target) {
        self.members.remove(&target);
    }

    /// Commits a call that returned normally.
    pub(super) fn commit(&mut self) {
        self.undo.clear();
    }

    /// Undoes the changes of a failed call.
    pub(super) fn discard(&mut self) {
        while let Some(undo) = self.undo.pop() {
            match undo {
                Undo::Forget(class) => {
                    self.defined.remove(&class);
                }
                Undo::Define(class) => {
                    self.defined.insert(class);
                }
                Undo::Put(target, Some(class)) => {
                    self.members.insert(target, class);
                }
                Undo::Put(target, None) => {
                    self.members.remove(&target);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use qosm_model::pod::{ContainerId, PodId};

    const POD: Target = Target::Pod(PodId(1));
    const CONTAINER: Target = Target::Container(ContainerId(7));

    fn name(text: &str) -> ClassName {
        text.parse().unwrap()
    }

    /// The defined classes, and the classes of the pod and the container.
    fn shown(classes: &StagedClasses) -> (Vec<String>, Option<String>, Option<String>) {
        let mut defined: Vec<_> = classes.defined.iter().map(ToString::to_string).collect();
        defined.sort();
        let of = |target| classes.of(target).map(ToString::to_string);
        (defined, of(POD), of(CONTAINER))
    }

    #[test]
    fn a_class_that_goes_takes_its_members_along() {
        let mut classes = StagedClasses::default();
        classes.define(name("a"));
        classes.define(name("b"));
        classes.assign(POD, name("a"));
        classes.assign(CONTAINER, name("b"));
        classes.undefine(&name("a"));
        classes.commit();
        assert_eq!(shown(&classes), (vec!["b".to_owned()], None, Some("b".to_owned())));
    }

    #[test]
    fn a_discarded_call_leaves_classes_and_members_as_they_were() {
        let mut classes = StagedClasses::default();
        classes.define(name("a"));
        classes.define(name("b"));
        classes.assign(POD, name("a"));
        classes.commit();
        let before = shown(&classes);
        classes.define(name("a"));
        classes.assign(POD, name("b"));
        classes.assign(CONTAINER, name("b"));
        classes.undefine(&name("b"));
        classes.undefine(&name("a"));
        classes.define(name("b"));
        classes.define(name("c"));
        classes.assign(CONTAINER, name("c"));
        classes.release(CONTAINER);
        classes.discard();
        assert_eq!(shown(&classes), before);
        classes.discard();
        assert_eq!(shown(&classes), before, "there is nothing more to take back");
    }
}
