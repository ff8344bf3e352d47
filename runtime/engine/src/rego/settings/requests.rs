//! Objects for resources of the node and for evictions.

use std::collections::BTreeMap;

use qosm_model::eviction::{Eviction, Urgency};
use qosm_model::node_resource::{Offer, ResourceName};
use qosm_model::pod::PodId;

use super::{Fields, Flawed, whole, wrong};
use crate::convert::resource::{checked, name};

/// The largest amount that Kubernetes can represent.
const MOST: i64 = i64::MAX;

impl Fields<'_> {
    /// A resource and its amount.
    pub(super) fn offer(&self) -> Flawed<(ResourceName, Offer)> {
        let name = name(self.text("publish")?)?;
        let amount = self.amount("amount")?;
        let origin = self.0.get("origin").map(|_| self.amount("origin")).transpose()?;
        let mut zones = BTreeMap::new();
        if let Some(value) = self.0.get("zones") {
            let shares = value.as_object().ok_or_else(|| wrong("zones", value, "an object of amounts by NUMA node"))?;
            for (zone, share) in shares {
                let id = zone.as_str().and_then(|text| text.parse().ok().filter(|id: &u32| id.to_string() == text));
                let id = id.ok_or_else(|| wrong("zones", zone, "the number of a NUMA node, as a string"))?;
                let amount = share.as_number().ok_or_else(|| wrong("zones", share, "a whole number"))?;
                zones.insert(id, whole("zones", amount, 0, MOST)?.unsigned_abs());
            }
        }
        let offer = checked(&name, amount, zones.into_iter(), origin)?;
        Ok((name, offer))
    }

    /// A pod to be evicted.
    pub(super) fn eviction(&self) -> Flawed<Eviction> {
        let grace = self.0.get("gracePeriodSeconds").map(|_| self.number("gracePeriodSeconds", 0, u32::MAX.into()));
        Ok(Eviction {
            pod: PodId(self.id("evict")?),
            urgency: self.word("urgency", &Urgency::ALL.map(|word| (word.as_str(), word)))?.unwrap_or_default(),
            grace_period: grace.transpose()?.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
            reason: self.text("reason")?.to_owned(),
            message: self.text("message")?.to_owned(),
        })
    }

    fn amount(&self, field: &'static str) -> Flawed<u64> {
        self.number(field, 0, MOST).map(i64::unsigned_abs)
    }
}

#[cfg(test)]
mod tests {
    use qosm_rego::Value as Rego;

    use super::super::{Declared, read};
    use super::*;
    use crate::interface::Interface;

    fn read_one(text: &str) -> Result<Declared, String> {
        let document = Rego::parse(&format!("[{text}]")).map_err(|error| error.to_string())?;
        let grants = [Interface::NodeResource, Interface::Eviction].into();
        read(&document, &grants, 10).map(|mut read| read.remove(0)).map_err(|rule| rule.to_string())
    }

    #[test]
    fn a_resource_has_an_amount_and_perhaps_shares_and_an_origin() {
        let text = r#"{"publish": "kubernetes.io/batch-cpu", "amount": 12000, "zones": {"0": 8e3, "1": 4000}, "origin": 14000, "reason": "idle"}"#;
        let offer = Offer { amount: 12_000, zones: [(0, 8_000), (1, 4_000)].into(), origin: Some(14_000) };
        let expected =
            Declared::Publish { name: "kubernetes.io/batch-cpu".parse().unwrap(), offer, reason: "idle".to_owned() };
        assert_eq!(read_one(text), Ok(expected));
        assert_eq!(read_one(r#"{"staleAfter": 300}"#), Ok(Declared::StaleAfter(300)));
    }

    #[test]
    fn an_eviction_is_no_hurry_unless_it_says_so() {
        let text = r#"{"evict": "7", "reason": "MemoryUsage", "message": "too much"}"#;
        let calm = Eviction {
            pod: PodId(7),
            urgency: Urgency::Soon,
            grace_period: None,
            reason: "MemoryUsage".to_owned(),
            message: "too much".to_owned(),
        };
        assert_eq!(read_one(text), Ok(Declared::Evict(calm.clone())));
        let text = r#"{"evict": "7", "urgency": "now", "gracePeriodSeconds": 0, "reason": "MemoryUsage", "message": "too much"}"#;
        let urgent = Eviction { urgency: Urgency::Now, grace_period: Some(0), ..calm };
        assert_eq!(read_one(text), Ok(Declared::Evict(urgent)));
    }

    #[test]
    fn what_cannot_be_asked_for_names_the_field_and_what_to_write() {
        for (text, part) in [
            (r#"{"publish": "batch-cpu", "amount": 1, "reason": "r"}"#, "DOMAIN/NAME"),
            (r#"{"publish": "kubernetes.io/batch-cpu", "amount": -1, "reason": "r"}"#, "amount: -1 is not within 0"),
            (
                r#"{"publish": "kubernetes.io/batch-cpu", "amount": 1e400, "reason": "r"}"#,
                "amount: 1e400 is not within",
            ),
            (r#"{"publish": "kubernetes.io/batch-cpu", "amount": 0.5, "reason": "r"}"#, "round it"),
            (r#"{"publish": "kubernetes.io/batch-cpu", "amount": 1, "reason": ""}"#, "reason: it is empty"),
            (r#"{"publish": "kubernetes.io/batch-cpu", "reason": "r"}"#, "`amount` is missing"),
            (
                r#"{"publish": "kubernetes.io/batch-cpu", "amount": 1, "zones": [1], "reason": "r"}"#,
                "zones: it is an array",
            ),
            (r#"{"publish": "kubernetes.io/batch-cpu", "amount": 1, "zones": {"x": 1}, "reason": "r"}"#, "NUMA node"),
            (r#"{"publish": "kubernetes.io/batch-cpu", "evict": "7"}"#, "make two objects"),
            (r#"{"evict": "7", "urgency": "later", "reason": "R", "message": "m"}"#, "`soon`, `now`"),
            (r#"{"evict": 7, "reason": "R", "message": "m"}"#, "the `id` of a pod"),
            (r#"{"evict": "7", "reason": "R"}"#, "`message` is missing"),
            (r#"{"staleAfter": -1}"#, "staleAfter: -1"),
        ] {
            let why = read_one(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
