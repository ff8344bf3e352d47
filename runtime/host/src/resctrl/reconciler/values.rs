//! Schemata of control groups, as far as the kernel accepts them.

use super::ClassReconciler;
use crate::resctrl::error::ResctrlError;
use crate::resctrl::group::GroupName;
use crate::resctrl::groups::Groups;
use crate::resctrl::schemata::Schemata;

/// Number of calls after which a refused value is tried again: another program's conflicting group may be gone.
const TRIES_UNTIL_RETRY: u8 = 16;

impl ClassReconciler {
    pub(super) fn apply(&mut self, name: &GroupName, class: usize) -> Result<(), ResctrlError> {
        let (Some((_, translated)), Some(control)) = (self.translated.get(class), self.controls.get_mut(name)) else {
            return Ok(());
        };
        let wanted = &translated.schemata;
        let is_new = control.wanted != *wanted;
        if is_new {
            control.wanted = wanted.clone();
            control.instead = None;
        } else if control.instead.is_some() {
            control.until_retry = control.until_retry.saturating_sub(1);
            if control.until_retry == 0 {
                control.instead = None;
            }
        }
        let written = match &control.instead {
            Some(instead) => self.groups.apply(name, instead)?,
            None => match self.groups.apply(name, wanted) {
                Ok(written) => {
                    control.refused.clear();
                    written
                }
                Err(ResctrlError::Refused { .. }) => {
                    let (instead, refused) = line_by_line(&self.groups, name, wanted)?;
                    control.refused = refused;
                    control.until_retry = TRIES_UNTIL_RETRY;
                    self.groups.apply(name, control.instead.insert(instead))?
                }
                Err(error) => return Err(error),
            },
        };
        let is_changed_by_others = !is_new && control.instead.is_none() && !written.changed.is_empty();
        if is_changed_by_others && !control.is_contested {
            tracing::warn!(group = %name, was = control.line, "another program changed the schemata of a resctrl group; written again");
        }
        control.is_contested = is_changed_by_others;
        if control.now != written.now || control.line.is_empty() {
            control.line = written.now.to_string().trim_ascii_end().replace('\n', " ");
            control.now = written.now;
        }
        Ok(())
    }
}

/// Writes the acceptable part of schemata that the kernel refused as a whole, line by line. A refused line falls back
/// to the root's value, which contains no exclusive ways. Returns the resulting schemata, and the refusals.
fn line_by_line(groups: &Groups, name: &GroupName, wanted: &Schemata) -> Result<(Schemata, Vec<String>), ResctrlError> {
    let root = groups.schemata(None)?;
    let mut taken = Schemata::new();
    let mut refused = Vec::new();
    for line in wanted.lines() {
        match groups.apply(name, &line) {
            Ok(_) => taken.merge(&line),
            Err(error @ ResctrlError::Refused { .. }) => {
                let mut instead = line.clone();
                let mut asks_for_less = false;
                for (resource, id, mask) in line.masks() {
                    asks_for_less |= groups.info().caches.get(&resource).is_some_and(|cache| cache.cbm_mask != mask);
                    if let Some(of_root) = root.mask(resource, id) {
                        instead.set_mask(resource, id, of_root);
                    }
                }
                if asks_for_less || line.bandwidths().next().is_some() {
                    refused.push(error.full_message());
                }
                match groups.apply(name, &instead) {
                    Ok(_) => taken.merge(&instead),
                    Err(ResctrlError::Refused { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok((taken, refused))
}
