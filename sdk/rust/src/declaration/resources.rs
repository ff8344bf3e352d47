//! Resources of the node that the policy declared.

use std::collections::BTreeMap;

use super::{Declaration, Declared, RELEASED, StaleAfter, Undefine, keep};
use crate::{Host, Offer};

/// After how many seconds resources no longer hold unless a policy says otherwise.
const STALE_SECONDS: u32 = 900;

/// A resource that the host has from this policy.
#[derive(Clone, Debug)]
struct Published {
    offer: Offer,
    reason: String,
    declared: Declared,
}

/// All of them, and how long they hold.
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

    /// Whether a resource is not what the host has; it is from now on.
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

    /// Whether that is not what was said last.
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

    /// The call failed: none of them is withdrawn by a later call for the sake of this one.
    pub(super) fn discard_resources(&mut self) {
        if let Some(resources) = self.undo.resources.take() {
            self.resources = resources;
        }
        let published = self.resources.published.values_mut().map(|known| &mut known.declared);
        for declared in published.chain(self.resources.stale_after.as_mut().map(|(_, declared)| declared)) {
            *declared = self.call;
        }
    }

    /// Withdraws what is over.
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
