//! The functions `net.cidr_*` that OPA does not compile into the module.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::builtin::{Fault, Outcome, excerpt};
use crate::operand::{Elements, Operands, too_many};
use crate::table::{Entry, host};
use crate::{Context, Value, limit, weight};

pub(crate) const ENTRIES: &[Entry] = &[
    host("net.cidr_contains_matches", 2, contains_matches),
    host("net.cidr_expand", 1, expand),
    host("net.cidr_is_valid", 1, is_valid),
    host("net.cidr_merge", 1, merge),
];

/// Weight of an address as an element of a set, in bytes.
const ADDRESS: usize = 96 + 48 + weight::TEXT;

/// The prefix of IPv4 addresses mapped into IPv6.
const MAPPED: u128 = 0xffff_0000_0000;

/// A network in 128 bits; IPv4 networks are mapped into IPv6, as in Go.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Network {
    /// The address as it is printed; it has bits beyond the prefix if it was written without one.
    address: u128,
    /// Length of the prefix, of 128 bits.
    prefix: u32,
    /// Whether it was written as an IPv6 network.
    is_v6: bool,
}

impl Network {
    fn parse(text: &str) -> Result<Self, Fault> {
        let invalid = || Fault::from(format!("invalid CIDR address: {}", excerpt(text)));
        let (address, prefix) = text.split_once('/').ok_or_else(invalid)?;
        let address: IpAddr = address.parse().map_err(|_| invalid())?;
        if prefix.is_empty() || !prefix.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(invalid());
        }
        let prefix: u32 = prefix.parse().map_err(|_| invalid())?;
        let (address, prefix, most) = match address {
            IpAddr::V4(address) => (mapped(address), prefix.saturating_add(96), 128),
            IpAddr::V6(address) => (address.to_bits(), prefix, 128),
        };
        if prefix > most {
            return Err(invalid());
        }
        Ok(Self { address: address & mask(prefix), prefix, is_v6: text.contains(':') })
    }

    fn first(&self) -> u128 {
        self.address & mask(self.prefix)
    }

    fn last(&self) -> u128 {
        self.address | !mask(self.prefix)
    }

    fn contains(&self, address: u128) -> bool {
        // An IPv6 network never contains an IPv4 address.
        is_mapped(address) == is_mapped(self.address) && address & mask(self.prefix) == self.first()
    }

    fn holds(&self, other: &Self) -> bool {
        let are_v6 = [self, other].iter().all(|network| network.is_v6 && !is_mapped(network.address));
        if are_v6 {
            return self.prefix <= other.prefix && other.address & mask(self.prefix) == self.first();
        }
        self.contains(other.first()) && self.contains(other.last())
    }
}

impl std::fmt::Display for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let prefix = if is_mapped(self.address) { self.prefix.saturating_sub(96) } else { self.prefix };
        write!(f, "{}/{prefix}", printed(self.address))
    }
}

fn mask(prefix: u32) -> u128 {
    u128::MAX.checked_shl(128_u32.saturating_sub(prefix)).unwrap_or(0)
}

fn mapped(address: Ipv4Addr) -> u128 {
    MAPPED | u128::from(address.to_bits())
}

fn is_mapped(address: u128) -> bool {
    address & mask(96) == MAPPED
}

fn printed(address: u128) -> IpAddr {
    let address = Ipv6Addr::from_bits(address);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

fn address(text: &str) -> Option<u128> {
    match text.parse().ok()? {
        IpAddr::V4(address) => Some(mapped(address)),
        IpAddr::V6(address) => Some(address.to_bits()),
    }
}

fn is_valid(arguments: &[Value], _: &Context) -> Outcome {
    let text = Operands(arguments).any(0)?.as_str();
    Ok(Some(Value::Bool(text.is_some_and(|text| Network::parse(text).is_ok()))))
}

fn expand(arguments: &[Value], context: &Context) -> Outcome {
    let network = Network::parse(Operands(arguments).text(0)?)?;
    if network.last() - network.first() >= u128::try_from(limit::ELEMENTS).unwrap_or(u128::MAX) {
        return Err(too_many());
    }
    let mut addresses = BTreeSet::new();
    for address in (network.first()..=network.last()).take_while(|address| network.contains(*address)) {
        context.charge(ADDRESS)?;
        context.work(if is_mapped(address) { 250 } else { 450 })?;
        addresses.insert(Value::from(printed(address).to_string()));
    }
    Ok(Some(Value::Set(addresses)))
}

/// All pairs of a network's key or index and the key or index of an address or network that it contains.
fn contains_matches(arguments: &[Value], context: &Context) -> Outcome {
    let operands = Operands(arguments);
    let (ones, others) = (named(operands.any(0)?, 1, context)?, named(operands.any(1)?, 2, context)?);
    let mut pairs = BTreeSet::new();
    if ones.is_empty() || others.is_empty() {
        return Ok(Some(Value::Set(pairs)));
    }
    context.work(ones.len().saturating_add(others.len()).saturating_mul(150))?;
    context.charge(ones.len().saturating_mul(size_of::<Network>() * 2))?;
    let networks: Vec<Network> = ones.iter().map(|(text, _)| Network::parse(text)).collect::<Result<_, _>>()?;
    for (text, other_key) in &others {
        let contained = match address(text) {
            Some(address) => Ok(address),
            None => Err(Network::parse(text).map_err(|_| {
                Fault::from(format!("not a valid textual representation of an IP address or CIDR: {}", excerpt(text)))
            })?),
        };
        for (network, (_, key)) in networks.iter().zip(&ones) {
            context.work(12)?;
            let holds = match &contained {
                Ok(address) => network.contains(*address),
                Err(other) => network.holds(other),
            };
            if holds {
                if pairs.len() >= limit::ELEMENTS {
                    return Err(too_many());
                }
                // Both keys are copied, and compared with those of other pairs during insertion.
                let pair = key.weight().saturating_add(other_key.weight()).saturating_add(96 + 2 * weight::ELEMENT);
                context.charge(pair)?;
                context.work_on(pair.saturating_mul(2))?;
                pairs.insert(Value::Array(vec![key.clone(), other_key.clone()]));
            }
        }
    }
    Ok(Some(Value::Set(pairs)))
}

/// The networks of an argument, each with its key in the result.
fn named<'a>(value: &'a Value, operand: usize, context: &Context) -> Result<Vec<(&'a str, Value)>, Fault> {
    let weight = value.weight();
    context.charge(weight)?;
    context.work_on(weight.saturating_mul(4))?;
    match value {
        Value::String(text) => Ok(vec![(text, value.clone())]),
        Value::Array(elements) => (0_i64..)
            .zip(elements)
            .map(|(index, element)| Ok((network_text(element, operand)?, Value::from(index))))
            .collect(),
        Value::Set(elements) => {
            elements.iter().map(|element| Ok((network_text(element, operand)?, element.clone()))).collect()
        }
        Value::Object(pairs) => {
            pairs.iter().map(|(key, element)| Ok((network_text(element, operand)?, key.clone()))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => Ok(Vec::new()),
    }
}

/// The network of an element: a string, or the first element of an array.
fn network_text(value: &Value, operand: usize) -> Result<&str, Fault> {
    let first = match value {
        Value::Array(parts) => parts.first(),
        other => Some(other),
    };
    first
        .and_then(Value::as_str)
        .ok_or_else(|| format!("operand {operand}: element must be string or non-empty array").into())
}

/// The smallest set of networks that holds the same addresses.
fn merge(arguments: &[Value], context: &Context) -> Outcome {
    let elements = Elements::of(Operands(arguments).any(0)?).ok_or("operand must be an array")?;
    let mut ranges = Vec::with_capacity(elements.len());
    for element in elements.iter() {
        // Work of parsing the element and of sorting it.
        context.charge(size_of::<Range>().saturating_mul(3))?;
        context.work(600)?;
        let network = network_or_class(element.as_str().ok_or("element must be string")?)?;
        ranges.push(Range { first: network.first(), last: network.last(), network: Some(network) });
    }
    ranges.sort_by_key(|range| (range.last, range.first));
    let mut merged: Vec<Range> = Vec::new();
    for range in ranges.into_iter().rev() {
        match merged.last_mut() {
            Some(after) if before(after.first) <= range.last => {
                after.first = after.first.min(range.first);
                after.network = None;
            }
            _ => merged.push(range),
        }
    }
    let mut networks = BTreeSet::new();
    for range in merged {
        // A range has at most one network for each bit at either end.
        let most = if range.network.is_some() { 1 } else { 256 };
        context.work(most * 20)?;
        let before = networks.len();
        match range.network {
            Some(network) => networks.extend([Value::from(network.to_string())]),
            None => networks.extend(range.networks().iter().map(|network| Value::from(network.to_string()))),
        }
        if networks.len() > limit::ELEMENTS {
            return Err(too_many());
        }
        let new = networks.len().saturating_sub(before);
        context.charge(new.saturating_mul(ADDRESS))?;
        context.work(new.saturating_mul(500))?;
    }
    Ok(Some(Value::Set(networks)))
}

struct Range {
    first: u128,
    last: u128,
    /// The original network; `None` for a merged range.
    network: Option<Network>,
}

impl Range {
    /// The smallest set of networks that makes up the range: from each address the largest network that begins there and
    /// does not exceed the range.
    fn networks(&self) -> Vec<Network> {
        let mut networks = Vec::new();
        let mut from = Some(self.first);
        while let Some(address) = from.filter(|address| *address <= self.last) {
            let mut free = address.trailing_zeros().min(128);
            while free > 0 && (address | !mask(128 - free)) > self.last {
                free -= 1;
            }
            let network = Network { address, prefix: 128 - free, is_v6: true };
            from = network.last().checked_add(1);
            networks.push(network);
        }
        networks
    }
}

/// The previous address; the first address of a family is returned unchanged.
fn before(address: u128) -> u128 {
    if address == MAPPED { address } else { address.saturating_sub(1) }
}

/// Parses a network; an IPv4 address without a prefix means the network of its class (A, B or C).
fn network_or_class(text: &str) -> Result<Network, Fault> {
    let Some(address) = address(text) else { return Network::parse(text) };
    if !is_mapped(address) {
        return Err("IPv6 invalid: needs prefix length".into());
    }
    let prefix = match (address & u128::from(u32::MAX)) >> 24 {
        ..0x80 => 8,
        0x80..0xc0 => 16,
        _ => 24,
    };
    Ok(Network { address, prefix: 96 + prefix, is_v6: false })
}
