//! Classes of shares: `{"class": …, "cache": …, "bandwidth": …, "domains": …}`.

use std::collections::BTreeMap;

use qosm_model::resctrl::{BandwidthShare, CacheShare, ClassName, DomainId, Share, Shares};
use qosm_rego::Value as Rego;

use super::{Fields, Flawed, shown_value, whole, wrong};
use crate::rego::error::SettingFlaw;

impl Fields<'_> {
    /// The name of a class.
    pub(super) fn class(&self, name: &'static str) -> Flawed<ClassName> {
        let text = self.text(name)?;
        let expected = "the name of a class: 1 to 63 letters, digits, `-` or `_`";
        text.parse().map_err(|_| wrong(name, &Rego::from(text), expected))
    }

    /// The shares of a class: `cache` and `bandwidth` for all domains, and in `domains` those that differ.
    pub(super) fn shares(&self) -> Flawed<Shares> {
        let mut own = BTreeMap::new();
        if let Some(value) = self.0.get("domains") {
            let domains = value.as_object().ok_or_else(|| wrong("domains", value, "an object by domain"))?;
            for (key, value) in domains {
                let domain = domain(key)?;
                let place = format!("domains[{}]", domain.0);
                let share = read_within(place, value, &["cache", "bandwidth"], |fields| fields.share())?;
                own.insert(domain, share);
            }
        }
        Ok(Shares { all: self.share()?, domains: own })
    }

    fn share(&self) -> Flawed<Share> {
        let cache = self.part("cache", &["percent", "mask"], |fields| match fields.field("percent") {
            Ok(percent) => range(percent),
            Err(_) => fields.number("mask", 1, i64::MAX).map(|mask| CacheShare::Mask(mask.unsigned_abs())),
        })?;
        let bandwidth = self.part("bandwidth", &["percent", "megabytes"], |fields| {
            let whole = |name, most: u32| {
                fields.number(name, 1, most.into()).map(|number| u32::try_from(number).unwrap_or(most))
            };
            match fields.field("percent") {
                Ok(_) => whole("percent", 100).map(BandwidthShare::Percent),
                Err(_) => whole("megabytes", u32::MAX).map(BandwidthShare::Megabytes),
            }
        })?;
        Ok(Share { cache, bandwidth })
    }

    /// An object with exactly one of several fields; `None` if the object is missing.
    fn part<T>(
        &self,
        name: &'static str,
        forms: &'static [&'static str],
        read: impl Fn(&Fields<'_>) -> Flawed<T>,
    ) -> Flawed<Option<T>> {
        let Some(value) = self.0.get(name) else { return Ok(None) };
        let read = |fields: &Fields<'_>| {
            let present = forms.iter().filter(|form| fields.0.get(form).is_some()).count();
            if present == 1 { read(fields) } else { Err(SettingFlaw::NotOneOf { found: present, fields: forms }) }
        };
        read_within(name.to_owned(), value, forms, read).map(Some)
    }
}

/// Reads a nested object; its errors name its place.
pub(super) fn read_within<T>(
    place: String,
    value: &Rego,
    known: &'static [&'static str],
    read: impl Fn(&Fields<'_>) -> Flawed<T>,
) -> Flawed<T> {
    let read = || {
        if value.as_object().is_none() {
            return Err(SettingFlaw::NotAnObject { found: value.type_name() });
        }
        let fields = Fields(value);
        fields.only(known)?;
        read(&fields)
    };
    read().map_err(|flaw| SettingFlaw::Within { place, flaw: Box::new(flaw) })
}

/// A key of `domains`: a domain's number, or that number as a string, since JSON has only strings as keys.
fn domain(key: &Rego) -> Flawed<DomainId> {
    let id = match key {
        Rego::String(text) => text.parse().ok().filter(|id: &u32| id.to_string() == **text),
        Rego::Number(number) => whole("domains", number, 0, u32::MAX.into()).ok().and_then(|id| u32::try_from(id).ok()),
        _ => None,
    };
    id.map(DomainId).ok_or_else(|| SettingFlaw::Value {
        field: "domains",
        found: format!("by {}", shown_value(key)),
        expected: "by the `id` of a domain, as `input.resctrl.domains` has it".to_owned(),
    })
}

/// The cache ways between two percentages.
fn range(value: &Rego) -> Flawed<CacheShare> {
    let wrong = || wrong("percent", value, "an array of two numbers, where the ways begin and where they end");
    let number = |value: &Rego| -> Flawed<u32> {
        let number = whole("percent", value.as_number().ok_or_else(wrong)?, 0, 100)?;
        Ok(u32::try_from(number).unwrap_or_default())
    };
    let Some([start, end]) = value.as_array() else { return Err(wrong()) };
    let cache = CacheShare::Percent { start: number(start)?, end: number(end)? };
    let share = Share { cache: Some(cache), bandwidth: None };
    share.check().map(|_| cache).map_err(|why| SettingFlaw::Share { field: "percent", why })
}
