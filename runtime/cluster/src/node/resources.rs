//! A node's capacity and allocatable of each resource, in whole numbers.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use qosm_model::pod::NodeResource;

use crate::quantity::Quantity;

type Amounts = BTreeMap<String, Text>;

/// Reads capacity and allocatable, each with the path of its field. An unusable amount is reported and left out; the others count.
pub(crate) fn read(
    amounts: &[(&'static str, Option<Amounts>); 2],
    mut report: impl FnMut(String, String),
) -> Vec<NodeResource> {
    let names: BTreeSet<&String> =
        amounts.iter().filter_map(|(_, amounts)| amounts.as_ref()).flat_map(BTreeMap::keys).collect();
    let mut resources = Vec::with_capacity(names.len());
    for name in names {
        let mut read = |(path, amounts): &(&'static str, Option<Amounts>)| {
            let text = &amounts.as_ref()?.get(name)?.0;
            match amount(name, text) {
                Ok(amount) => Some(amount),
                Err(why) => {
                    report(format!("{path}.{name}"), format!("`{text}` {why}"));
                    None
                }
            }
        };
        let [capacity, allocatable] = [read(&amounts[0]), read(&amounts[1])];
        if capacity.is_some() || allocatable.is_some() {
            resources.push(NodeResource { name: name.clone(), capacity, allocatable });
        }
    }
    resources
}

/// CPU in thousandths, other resources in their own unit; fractions are rounded up, as in Kubernetes.
fn amount(name: &str, text: &str) -> Result<i64, String> {
    let (is_cpu, example) = (name == "cpu", if name == "memory" { "32Gi" } else { "4" });
    let instead = if name == "memory" {
        "all of the machine's memory counts"
    } else if is_cpu {
        "all of the machine's CPUs count"
    } else {
        "it is left out"
    };
    let quantity = Quantity::parse(text)
        .map_err(|error| format!("is not a quantity: {error}; {instead}, write e.g. `{example}`"))?;
    // Kubernetes caps every quantity at 2^63 - 1, so an amount at the cap may have been larger.
    let units = if is_cpu { quantity.millis() } else { quantity.units() };
    let fits = |amount: &i64| *amount < i64::MAX && quantity.units() < u64::MAX / 2;
    i64::try_from(units)
        .ok()
        .filter(fits)
        .ok_or_else(|| format!("is more than can be counted; {instead}, write e.g. `{example}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_counts_in_thousandths_and_the_rest_in_its_own_unit() {
        for (name, text, expected) in [
            ("cpu", "8", 8_000),
            ("cpu", "7910m", 7_910),
            ("cpu", "0.0001", 1),
            ("cpu", "0", 0),
            ("memory", "32Gi", 32 << 30),
            ("memory", "0.1Gi", 107_374_183),
            ("kubernetes.io/batch-cpu", "15", 15),
            ("kubernetes.io/batch-cpu", "1500m", 2),
            ("ephemeral-storage", "9223372036854775806", i64::MAX - 1),
        ] {
            assert_eq!(amount(name, text), Ok(expected), "{name} {text}");
        }
    }

    #[test]
    fn what_cannot_be_expressed_is_named_with_the_way_out() {
        for (name, text, why) in [
            ("cpu", "1e400", "is more than can be counted; all of the machine's CPUs count, write e.g. `4`"),
            (
                "cpu",
                "9223372036854775.9",
                "is more than can be counted; all of the machine's CPUs count, write e.g. `4`",
            ),
            ("memory", "1e400", "is more than can be counted; all of the machine's memory counts, write e.g. `32Gi`"),
            ("kubernetes.io/batch-cpu", "-5", "is not a quantity: it is negative; it is left out, write e.g. `4`"),
            (
                "cpu",
                "eight",
                "is not a quantity: it does not begin with a number; all of the machine's CPUs count, write e.g. `4`",
            ),
        ] {
            assert_eq!(amount(name, text), Err(why.to_owned()), "{name} {text}");
        }
    }

    #[test]
    fn a_wrong_amount_leaves_the_others() {
        let amounts = |pairs: &[(&str, &str)]| -> Option<Amounts> {
            Some(pairs.iter().map(|(name, text)| ((*name).to_owned(), Text((*text).to_owned()))).collect())
        };
        let mut reported = Vec::new();
        let read = read(
            &[
                ("status.capacity", amounts(&[("cpu", "8"), ("memory", "much")])),
                ("status.allocatable", amounts(&[("cpu", "-1"), ("kubernetes.io/batch-cpu", "5000")])),
            ],
            |field, _| reported.push(field),
        );
        let shown: Vec<_> = read.iter().map(|one| (one.name.as_str(), one.capacity, one.allocatable)).collect();
        assert_eq!(shown, [("cpu", Some(8_000), None), ("kubernetes.io/batch-cpu", None, Some(5_000))]);
        assert_eq!(reported, ["status.allocatable.cpu", "status.capacity.memory"]);
    }
}
