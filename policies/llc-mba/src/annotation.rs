//! The annotation of a pod: `{"llc": {"schemata": {"range": [20, 80]}, "schemataPerCache": [{"cacheID": 0, "range": [20, 30]}]}, "mb":
//! {"schemata": {"percent": 35}, "schemataPerCache": [{"cacheID": 0, "percent": 80}]}}`.
//!
//! The host checks what a schema can express, but does not normalize names within lists. So names match in any letter case on every level
//! here, as in Go's decoder, which the annotation is written for.

use std::collections::BTreeMap;

use qosm_sdk::{BandwidthShare, CacheShare, Share};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::config::ALL;
use crate::shares::Shares;

/// A pod's effective configuration, unparsed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct PodConfig {
    fields: Map<String, Value>,
}

/// A field with an invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// Path of the field.
    pub(crate) field: String,
    /// What is wrong, and how to fix it.
    pub(crate) message: String,
}

impl PodConfig {
    /// The pod's own shares; `None` if it asks for none.
    ///
    /// # Errors
    ///
    /// Returns the first field that cannot be used.
    pub(crate) fn own(&self) -> Result<Option<Shares>, Fault> {
        let cache = Resource::read(&self.fields, "llc", "range", range)?;
        let bandwidth = Resource::read(&self.fields, "mb", "percent", percent)?;
        let mut domains: BTreeMap<u32, Share> = BTreeMap::new();
        let none = Share { cache: None, bandwidth: None };
        for (id, cache) in cache.caches {
            domains.entry(id).or_insert(none).cache = cache;
        }
        for (id, bandwidth) in bandwidth.caches {
            domains.entry(id).or_insert(none).bandwidth = bandwidth;
        }
        let shares = Shares { all: Share { cache: cache.all, bandwidth: bandwidth.all }, domains }.normalized();
        Ok(Some(shares).filter(|shares| !shares.is_nothing()))
    }
}

/// The configuration of `llc` or `mb`.
struct Resource<T> {
    all: Option<T>,
    caches: BTreeMap<u32, Option<T>>,
}

impl<T> Resource<T> {
    fn read(
        fields: &Map<String, Value>,
        name: &str,
        amount: &str,
        parse: fn(&Value, &str) -> Result<Option<T>, Fault>,
    ) -> Result<Self, Fault> {
        let mut resource = Self { all: None, caches: BTreeMap::new() };
        let Some(given) = object(field(fields, name), name)? else { return Ok(resource) };
        let path = format!("{name}.schemata");
        if let Some(schemata) = object(field(given, "schemata"), &path)?
            && let Some(value) = field(schemata, amount)
        {
            resource.all = parse(value, &format!("{path}.{amount}"))?;
        }
        let path = format!("{name}.schemataPerCache");
        let rows = match field(given, "schemataPerCache") {
            None => return Ok(resource),
            Some(Value::Array(rows)) => rows,
            Some(other) => return Err(fault(&path, other, "no list", r#"write one, e.g. [{"cacheID": 0, …}]"#)),
        };
        for (index, row) in rows.iter().enumerate() {
            let path = format!("{path}[{index}]");
            let Some(row) = object(Some(row), &path)? else { continue };
            let id_path = format!("{path}.cacheID");
            let id = field(row, "cacheID").ok_or_else(|| missing(&id_path, "a cache's number, e.g. 0"))?;
            let id = id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| {
                fault(&id_path, id, "no number of a cache", "write one, as in the names below mon_data, e.g. 0")
            })?;
            let amount_path = format!("{path}.{amount}");
            let value = field(row, amount).ok_or_else(|| missing(&amount_path, "what the cache's share is to be"))?;
            let share = parse(value, &amount_path)?;
            if resource.caches.insert(id, share).is_some() {
                return Err(Fault {
                    message: format!("cache {id} is named before; name each cache once"),
                    field: id_path,
                });
            }
        }
        Ok(resource)
    }
}

fn range(value: &Value, path: &str) -> Result<Option<CacheShare>, Fault> {
    let bounds = value.as_array().and_then(|bounds| match bounds.as_slice() {
        [start, end] => Some((whole(start)?, whole(end)?)),
        _ => None,
    });
    match bounds {
        Some((start, end)) if start < end => Ok(Some(CacheShare::Percent((start, end)))),
        _ => {
            let way_out = "write two whole numbers from 0 to 100, the first below the second, e.g. [20, 80]";
            Err(fault(path, value, "no range of ways in percent", way_out))
        }
    }
}

fn percent(value: &Value, path: &str) -> Result<Option<BandwidthShare>, Fault> {
    let percent = whole(value).ok_or_else(|| {
        let way_out = "write a whole number from 1 to 100, or 0 to say nothing";
        fault(path, value, "no share of the memory bandwidth in percent", way_out)
    })?;
    Ok((percent > 0).then_some(BandwidthShare::Percent(percent)))
}

fn whole(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|percent| *percent <= ALL)
}

/// The field with this name, in any letter case; `None` also if it is `null`.
fn field<'f>(fields: &'f Map<String, Value>, name: &str) -> Option<&'f Value> {
    let written =
        || fields.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value).next_back();
    fields.get(name).or_else(written).filter(|value| !value.is_null())
}

fn object<'f>(value: Option<&'f Value>, path: &str) -> Result<Option<&'f Map<String, Value>>, Fault> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(fields)) => Ok(Some(fields)),
        Some(other) => Err(fault(path, other, "no JSON object", "write an object in braces")),
    }
}

fn fault(path: &str, value: &Value, what: &str, way_out: &str) -> Fault {
    const MAX: usize = 80;
    let mut shown: String = value.to_string().chars().take(MAX + 1).collect();
    if shown.chars().count() > MAX {
        shown = shown.chars().take(MAX).chain(['…']).collect();
    }
    Fault {
        field: path.to_owned(),
        message: format!("`{shown}` is {what}; {way_out}; the pod stays in its QoS class until then"),
    }
}

fn missing(path: &str, what: &str) -> Fault {
    Fault {
        field: path.to_owned(),
        message: format!("it is missing; write {what}; the pod stays in its QoS class until then"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(json: &str) -> Result<Option<Shares>, Fault> {
        serde_json::from_str::<PodConfig>(json).unwrap().own()
    }

    /// Ways and memory bandwidth.
    type Said = (Option<(u32, u32)>, Option<u32>);

    fn shares(all: Said, domains: &[(u32, Said)]) -> Shares {
        let share = |(cache, bandwidth): Said| Share {
            cache: cache.map(CacheShare::Percent),
            bandwidth: bandwidth.map(BandwidthShare::Percent),
        };
        Shares { all: share(all), domains: domains.iter().map(|(id, given)| (*id, share(*given))).collect() }
    }

    #[test]
    fn it_is_read_as_the_protocol_has_it() {
        for (json, expected) in [
            (
                r#"{"llc":{"schemata":{"range":[20,80]},"schemataPerCache":[{"cacheID":0,"range":[20,30]}]},
                    "mb":{"schemata":{"percent":35},"schemataPerCache":[{"cacheID":0,"percent":80}]}}"#,
                Some(shares((Some((20, 80)), Some(35)), &[(0, (Some((20, 30)), Some(80)))])),
            ),
            // Names match in any letter case, on every level.
            (
                r#"{"LLC":{"Schemata":{"RANGE":[0,30]},"schematapercache":[{"cacheid":1,"Range":[0,40]}]},
                    "MB":{"schemata":{"Percent":20}}}"#,
                Some(shares((Some((0, 30)), Some(20)), &[(1, (Some((0, 40)), None))])),
            ),
            // For caches that are not named, `all` applies.
            (
                r#"{"mb":{"schemataPerCache":[{"cacheID":8,"percent":50}]}}"#,
                Some(shares((None, None), &[(8, (None, Some(50)))])),
            ),
            (r#"{"llc":{"schemata":{"range":[0,100]}}}"#, Some(shares((Some((0, 100)), None), &[]))),
            // Other fields are ignored.
            (
                r#"{"catRangeEndPercent":30,"l2":{},"llc":{"schemata":{"range":[0,9],"more":1}}}"#,
                Some(shares((Some((0, 9)), None), &[])),
            ),
            (r#"{"catRangeEndPercent":30,"mbaPercent":50}"#, None),
            (r#"{"llc":{},"mb":{"schemata":{},"schemataPerCache":[]}}"#, None),
            (r#"{"llc":null,"mb":{"schemata":null,"schemataPerCache":[null]}}"#, None),
            (r#"{"mb":{"schemata":{"percent":0}}}"#, None),
        ] {
            assert_eq!(own(json), Ok(expected), "{json}");
        }
    }

    #[test]
    fn what_cannot_be_is_named_with_a_way_out() {
        for (json, field) in [
            (r#"{"llc":{"schemata":{"range":[80,20]}}}"#, "llc.schemata.range"),
            (r#"{"llc":{"schemata":{"range":[20,20]}}}"#, "llc.schemata.range"),
            (r#"{"llc":{"schemata":{"range":[0,101]}}}"#, "llc.schemata.range"),
            (r#"{"llc":{"schemata":{"range":[-1,50]}}}"#, "llc.schemata.range"),
            (r#"{"llc":{"schemata":{"range":[0]}}}"#, "llc.schemata.range"),
            (r#"{"llc":{"schemata":{"range":[0,"50"]}}}"#, "llc.schemata.range"),
            (r#"{"llc":{"schemata":{"range":[0.5,50]}}}"#, "llc.schemata.range"),
            (r#"{"llc":{"schemata":{"range":"all"}}}"#, "llc.schemata.range"),
            (r#"{"llc":7}"#, "llc"),
            (r#"{"llc":{"schemata":[0,30]}}"#, "llc.schemata"),
            (r#"{"llc":{"schemataPerCache":{"cacheID":0}}}"#, "llc.schemataPerCache"),
            (r#"{"llc":{"schemataPerCache":[5]}}"#, "llc.schemataPerCache[0]"),
            (r#"{"llc":{"schemataPerCache":[{"range":[0,30]}]}}"#, "llc.schemataPerCache[0].cacheID"),
            (r#"{"llc":{"schemataPerCache":[{"cacheID":-1,"range":[0,30]}]}}"#, "llc.schemataPerCache[0].cacheID"),
            (r#"{"llc":{"schemataPerCache":[{"cacheID":0,"rnage":[0,30]}]}}"#, "llc.schemataPerCache[0].range"),
            (
                r#"{"llc":{"schemataPerCache":[{"cacheID":0,"range":[0,30]},{"cacheid":0,"range":[0,40]}]}}"#,
                "llc.schemataPerCache[1].cacheID",
            ),
            (r#"{"mb":{"schemata":{"percent":101}}}"#, "mb.schemata.percent"),
            (r#"{"mb":{"schemata":{"percent":"35"}}}"#, "mb.schemata.percent"),
            (r#"{"mb":{"schemataPerCache":[{"cacheID":0,"percent":-5}]}}"#, "mb.schemataPerCache[0].percent"),
        ] {
            let fault = own(json).unwrap_err();
            assert_eq!(fault.field, field, "{json}");
            assert!(fault.message.contains("write ") || fault.message.contains("name each"), "{}", fault.message);
        }
    }

    #[test]
    fn a_long_value_is_cut() {
        let json = format!(r#"{{"llc":{{"schemata":{{"range":"{}"}}}}}}"#, "ä".repeat(5_000));
        assert!(own(&json).unwrap_err().message.chars().count() < 300);
    }
}
