//! Counters declared once with a macro, which derives their type, differences, sums and JSON form. Recordings and the
//! input of Rego policies use that form.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::unit::{Bytes, Micros};

/// A sequence of named numbers.
pub trait Counters: Copy + Default + 'static {
    /// The names in JSON, with their units, in the order of declaration.
    const FIELDS: &'static [&'static str];

    /// The numbers, in the order of [`Self::FIELDS`].
    fn values(&self) -> impl Iterator<Item = u64>;

    /// Sets the counter with this name. Returns `false` if there is none.
    fn set(&mut self, field: &str, value: u64) -> bool;
}

/// Counters as a JSON object. Deserializing refuses unknown fields and sets missing ones to 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields<T>(pub T);

impl<T: Counters> Serialize for Fields<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(T::FIELDS.len()))?;
        for (field, value) in T::FIELDS.iter().zip(self.0.values()) {
            map.serialize_entry(field, &value)?;
        }
        map.end()
    }
}

impl<'de, T: Counters> Deserialize<'de> for Fields<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

struct Reader<T>(PhantomData<T>);

impl<'de, T: Counters> Visitor<'de> for Reader<T> {
    type Value = Fields<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of numbers")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<T>, A::Error> {
        let (mut counters, mut seen) = (T::default(), Vec::new());
        while let Some(name) = map.next_key::<String>()? {
            let Some(field) = T::FIELDS.iter().find(|field| **field == name) else {
                return Err(A::Error::unknown_field(&name, T::FIELDS));
            };
            if seen.contains(field) {
                return Err(A::Error::duplicate_field(field));
            }
            seen.push(*field);
            counters.set(field, map.next_value()?);
        }
        Ok(Fields(counters))
    }
}

/// A number with or without a unit.
pub(super) trait Number: Copy {
    fn number(self) -> u64;
    fn of(number: u64) -> Self;
}

impl Number for u64 {
    fn number(self) -> u64 {
        self
    }

    fn of(number: u64) -> Self {
        number
    }
}

impl Number for Micros {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

impl Number for Bytes {
    fn number(self) -> u64 {
        self.0
    }

    fn of(number: u64) -> Self {
        Self(number)
    }
}

/// The difference of a running total; 0 if the total ran backwards.
pub(super) fn difference<N: Number>(now: N, earlier: N) -> N {
    N::of(now.number().saturating_sub(earlier.number()))
}

pub(super) fn sum<N: Number>(earlier: N, added: N) -> N {
    N::of(earlier.number().saturating_add(added.number()))
}

/// Declares counters: for each field its documentation, type, whether it is a running `total` or a `level`, and its name in JSON.
macro_rules! counters {
    ($(#[$about:meta])* pub struct $name:ident { $($(#[$doc:meta])* $field:ident: $unit:ty = $kind:ident $json:literal,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $($(#[$doc])* pub $field: $unit,)*
        }

        impl $name {
            /// Levels unchanged, and the differences of totals since `earlier`; the difference of a total that ran
            /// backwards is 0.
            pub fn since(self, earlier: Self) -> Self {
                Self { $($field: counters!(@$kind self.$field, fields::difference(self.$field, earlier.$field)),)* }
            }

            /// The inverse of [`since`](Self::since): levels unchanged, and totals added to those of `earlier`.
            #[must_use]
            pub fn on_top_of(self, earlier: Self) -> Self {
                Self { $($field: counters!(@$kind self.$field, fields::sum(earlier.$field, self.$field)),)* }
            }
        }

        impl Counters for $name {
            const FIELDS: &'static [&'static str] = &[$($json),*];

            fn values(&self) -> impl Iterator<Item = u64> {
                [$(fields::Number::number(self.$field)),*].into_iter()
            }

            fn set(&mut self, field: &str, value: u64) -> bool {
                match field {
                    $($json => self.$field = fields::Number::of(value),)*
                    _ => return false,
                }
                true
            }
        }
    };
    (@total $level:expr, $total:expr) => { $total };
    (@level $level:expr, $total:expr) => { $level };
}

pub(super) use counters;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::column::{CpuCounters, MemoryCounters};

    #[test]
    fn counters_read_back_as_they_were_written() {
        let cpu = CpuCounters { usage: Micros(7), nr_periods: 10, nr_throttled: 3, throttled: Micros(9) };
        let text = serde_json::to_string(&Fields(cpu)).unwrap();
        assert_eq!(text, r#"{"usageUsec":7,"nrPeriods":10,"nrThrottled":3,"throttledUsec":9}"#);
        assert_eq!(serde_json::from_str::<Fields<CpuCounters>>(&text).unwrap(), Fields(cpu));
        assert_eq!(serde_json::from_str::<Fields<CpuCounters>>("{}").unwrap(), Fields::default());
    }

    #[test]
    fn a_field_that_does_not_fit_is_named() {
        for (text, error) in [
            (r#"{"usage": 7}"#, "unknown field `usage`, expected one of `usageUsec`, `nrPeriods`"),
            (r#"{"usageUsec": 7, "usageUsec": 7}"#, "duplicate field `usageUsec`"),
            (r#"{"usageUsec": "7"}"#, "invalid type: string \"7\", expected u64"),
            ("[7]", "invalid type: sequence, expected an object of numbers"),
        ] {
            let found = serde_json::from_str::<Fields<CpuCounters>>(text).unwrap_err().to_string();
            assert!(found.starts_with(error), "{text}: {found}");
        }
    }

    #[test]
    fn totals_are_differences_and_levels_stay() {
        let at = |anon, oom_kills| MemoryCounters { anon: Bytes(anon), oom_kills, ..MemoryCounters::default() };
        assert_eq!(at(5, 9).since(at(7, 4)), at(5, 5));
        assert_eq!(at(5, 3).since(at(7, 4)), at(5, 0), "it ran backwards");
        assert_eq!(at(5, 5).on_top_of(at(7, 4)), at(5, 9));
    }

    /// The contract and the schema of Rego's input are written by hand; their records must have the same fields in the same order.
    #[test]
    fn the_contract_and_rego_have_the_same_fields() {
        let wit = include_str!("../../../../sdk/wit/policy.wit");
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../../../sdk/rego/input.schema.json")).unwrap();
        for (column, fields) in [("cpu", CpuCounters::FIELDS), ("memory", MemoryCounters::FIELDS)] {
            let (_, interface) = wit.split_once(&format!("interface {column}-stat {{")).unwrap();
            let (_, record) = interface.split_once("record sample {").unwrap();
            let (record, _) = record.split_once('}').unwrap();
            let lines = record.lines().map(str::trim).filter(|line| !line.starts_with("///"));
            let names: Vec<String> =
                lines.filter_map(|line| line.split_once(':')).map(|(name, _)| camel_case(name)).collect();
            assert_eq!(names[0], "container");
            assert_eq!(names[1..], *fields);
            let schema = &schema["properties"][column]["additionalProperties"];
            assert_eq!(schema["required"], serde_json::json!(fields), "input.schema.json");
            let properties = schema["properties"].as_object().unwrap().keys().map(String::as_str);
            assert_eq!(properties.collect::<BTreeSet<_>>(), fields.iter().copied().collect(), "input.schema.json");
        }
    }

    fn camel_case(name: &str) -> String {
        let mut words = name.split('-');
        let first = words.next().unwrap().to_owned();
        words.fold(first, |name, word| name + &word[..1].to_ascii_uppercase() + &word[1..])
    }
}
