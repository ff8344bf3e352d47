//! The file `mode`: whether a group shares its ways with other groups.

use std::fmt;

use rustix::io::Errno;

use super::{GroupId, Tree};

/// Whether other groups may use a group's ways. The modes of pseudo-locking are not emulated, as in a kernel built without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The ways may overlap with those of other shareable groups.
    Shareable,
    /// No other group, and no other hardware, may use its ways.
    Exclusive,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shareable => "shareable",
            Self::Exclusive => "exclusive",
        })
    }
}

impl Tree {
    /// `rdtgroup_mode_write`
    pub(crate) fn write_mode(&mut self, id: GroupId, text: &[u8]) -> Result<(), Errno> {
        self.status.clear();
        let wanted = match text {
            b"shareable" => Mode::Shareable,
            b"exclusive" => Mode::Exclusive,
            _ => {
                self.status.line("Unknown or unsupported mode");
                return Err(Errno::INVAL);
            }
        };
        let mode = self.groups.get(&id).ok_or(Errno::NOENT)?.mode;
        if wanted == Mode::Exclusive && mode != wanted {
            self.test_exclusive(id)?;
        }
        if let Some(group) = self.groups.get_mut(&id) {
            group.mode = wanted;
        }
        Ok(())
    }

    /// `rdtgroup_mode_test_exclusive`
    fn test_exclusive(&mut self, id: GroupId) -> Result<(), Errno> {
        let closid = self.groups.get(&id).ok_or(Errno::NOENT)?.closid;
        let caches: Vec<_> = self.schemas.iter().filter(|schema| schema.resource.is_cache()).collect();
        let refusal = if caches.is_empty() {
            Some("Cannot be exclusive without CAT/CDP")
        } else {
            let overlaps = caches.iter().any(|schema| {
                self.domains(schema.resource).iter().any(|domain| {
                    let mask = self.control((schema.resource, schema.conf_type, domain.id, closid));
                    self.overlaps_any(schema, domain.id, mask, closid)
                })
            });
            overlaps.then_some("Schemata overlaps")
        };
        let Some(refusal) = refusal else { return Ok(()) };
        self.status.line(refusal);
        Err(Errno::INVAL)
    }
}
