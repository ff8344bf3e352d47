//! Resources of the node that the policy declared.

use std::collections::BTreeMap;

use super::{Declaration, Declared, RELEASED, StaleAfter, Undefine, keep};
use crate::{Host, Offer};

/// Default time in seconds after which published resources become invalid without a sign of life from the agent.
const STALE_SECONDS: u32 = 900;

/// A resource that the host publishes for this policy.
#[derive(Clone, Debug)]
struct Published {
    offer: Offer,
    reason: String,
    declared: Declared,
}

/// All resources, and how long they stay valid.
#[derive(Clone, Debug, Default)]
pub(super) struct Resources {
    published: BTreeMap<String, Published>,
    stale_after: Option<(u32, Declared)>,
}

impl Declaration {
    fn change_resources(&mut self) -> &mut Resources {
        if self.undo.resources.is_none() {
            self.undo.resources = Some(self.resources.clone());
        }
        &mut self.resources
    }

    /// Records a resource. Returns whether it differs from what the host has.
    pub(super) fn publish(&mut self, name: &str, offer: &Offer, reason: &str) -> bool {
        let declared = self.call;
        if let Some(known) = self.resources.published.get_mut(name)
            && (&known.offer, known.reason.as_str()) == (offer, reason)
        {
            known.declared = declared;
            return false;
        }
        let published = Published { offer: offer.clone(), reason: reason.to_owned(), declared };
        self.change_resources().published.insert(name.to_owned(), published);
        true
    }

    pub(super) fn withdraw(&mut self, name: &str) {
        if let Some(known) = self.resources.published.get_mut(name) {
            known.declared = RELEASED;
        }
    }

    /// Records the validity in seconds. Returns whether it differs from the last one.
    pub(super) fn stale_after(&mut self, seconds: u32) -> bool {
        let declared = self.call;
        match &mut self.resources.stale_after {
            Some((known, last)) if *known == seconds => {
                *last = declared;
                false
            }
            _ => {
                self.change_resources().stale_after = Some((seconds, declared));
                true
            }
        }
    }

    pub(super) fn keep_resources(&mut self) {
        let published = self.resources.published.values_mut().map(|known| &mut known.declared);
        for declared in published.chain(self.resources.stale_after.as_mut().map(|(_, declared)| declared)) {
            keep(declared, self.call);
        }
    }

    /// Restores the state before a failed call, and marks all resources as declared, so that the call withdraws none of them later.
    pub(super) fn discard_resources(&mut self) {
        if let Some(resources) = self.undo.resources.take() {
            self.resources = resources;
        }
        let published = self.resources.published.values_mut().map(|known| &mut known.declared);
        for declared in published.chain(self.resources.stale_after.as_mut().map(|(_, declared)| declared)) {
            *declared = self.call;
        }
    }

    /// Withdraws the resources for which `is_over` holds.
    pub(super) fn release_resources<H: Host + 'static>(&mut self, host: &mut H, is_over: impl Fn(Declared) -> bool) {
        let over = self.resources.published.iter().filter(|(_, known)| is_over(known.declared));
        let over: Vec<String> = over.map(|(name, _)| name.clone()).collect();
        let withdraw: Option<Undefine<H>> = self.releases.resource::<H>();
        for name in over {
            if let Some(withdraw) = withdraw {
                withdraw(host, &name);
            }
            self.change_resources().published.remove(&name);
        }
        if self.resources.stale_after.is_some_and(|(_, declared)| is_over(declared)) {
            let say: Option<StaleAfter<H>> = self.releases.stale_after::<H>();
            if let Some(say) = say {
                say(host, STALE_SECONDS);
            }
            self.change_resources().stale_after = None;
        }
    }
}
