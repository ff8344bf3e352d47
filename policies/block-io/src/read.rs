//! Reads blocks, field by field.

use qosm_sdk::{IoCostModel, IoLatency, IoLimits, shown};
use serde_json::{Map, Value};

use crate::config::{ANNOTATION, Block, Cost, Fault, Kind, Meanwhile, Share};

/// Fields of `ioCfg` that apply to processes.
pub(crate) const OF_SHARES: [&str; 5] = ["readBPS", "writeBPS", "readIOPS", "writeIOPS", "ioWeightPercent"];
/// The numbers of a user model, in the kernel's order.
pub(crate) const OF_MODEL: [&str; 6] = [
    "modelReadBPS",
    "modelReadSeqIOPS",
    "modelReadRandIOPS",
    "modelWriteBPS",
    "modelWriteSeqIOPS",
    "modelWriteRandIOPS",
];
/// The other fields of `ioCfg` that apply to devices.
pub(crate) const OF_DEVICES: [&str; 5] =
    ["readLatency", "writeLatency", "readLatencyPercent", "writeLatencyPercent", "enableUserModel"];
/// Fields of `blkioQOS`, in annotations and in classes.
const OF_GROUPS: [&str; 2] = ["enable", "blocks"];
/// Fields of a block.
const OF_BLOCKS: [&str; 3] = ["type", "name", "ioCfg"];
/// The largest number in the cluster's object.
const MOST: u64 = i64::MAX.unsigned_abs();
/// Maximum number of blocks of a list: a pod's owner can write any number of them.
pub(crate) const BLOCKS: usize = 64;
/// Maximum number of invalid fields of a list that are named.
pub(crate) const NAMED: usize = 4;
/// Maximum length of a name in bytes: that of a file name.
const NAME_BYTES: usize = 255;
/// The weight of a new cgroup.
const DEFAULT_WEIGHT: u64 = 100;

/// Invalid fields of a list: the first few, and the number of others.
#[derive(Default)]
pub(crate) struct Faults {
    named: Vec<Fault>,
    more: usize,
}

impl Faults {
    fn push(&mut self, fault: Fault) {
        if self.named.len() < NAMED {
            self.named.push(fault);
        } else {
            self.more += 1;
        }
    }

    /// The named faults, and one for the number of others.
    fn of_list(self, path: &str) -> impl Iterator<Item = Fault> {
        let Self { named, more } = self;
        let value = format!("wrong in these and {more} more fields");
        let rest = (more > 0).then(|| {
            fault(path.to_owned(), value, "those are named when these are mended").counts(Meanwhile::WithoutIt)
        });
        named.into_iter().chain(rest)
    }
}

/// The request that `ioCfg` is parsed into.
pub(crate) trait Asks: Copy {
    /// Reads the request; invalid fields keep their values from `last`.
    fn read(given: &mut Given<'_>, last: Option<&Self>) -> Self;
}

/// The last value of a field, in any letter case; `None` if it is `null`.
fn said<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let last = fields.iter().rfind(|(field, _)| field.eq_ignore_ascii_case(name));
    last.map(|(_, value)| value).filter(|value| !value.is_null())
}

/// Creates a fault.
fn fault(field: String, value: impl ToString, way_out: impl Into<String>) -> Fault {
    Fault { field, value: shown(value.to_string()), way_out: way_out.into(), meanwhile: Meanwhile::LastValue }
}

impl Fault {
    fn counts(self, meanwhile: Meanwhile) -> Self {
        Self { meanwhile, ..self }
    }
}

/// The faults of fields that are neither `own` nor of another place.
fn unknown(fields: &Map<String, Value>, own: &[&str], elsewhere: &[&str], path: &str) -> Vec<Fault> {
    let is_known = |field: &str| own.iter().chain(elsewhere).any(|known| known.eq_ignore_ascii_case(field));
    let others = fields.iter().filter(|(field, value)| !value.is_null() && !is_known(field));
    let fault = |(field, _): (&String, &Value)| {
        let field = format!("{path}.{}", shown(field.as_str()));
        let way_out = format!("the fields are {}", own.join(", "));
        fault(field, "unknown and ignored", way_out).counts(Meanwhile::WithoutIt)
    };
    // More are not named.
    others.map(fault).take(NAMED).collect()
}

/// `blkioQOS` of a class; `Err` names the field that is not an object.
fn of_class<'a>(fields: &'a Map<String, Value>, class: &str) -> Result<Option<&'a Map<String, Value>>, Fault> {
    let object = |value: &'a Value, path: String| {
        value.as_object().ok_or_else(|| fault(path, value, "give an object, or leave it out"))
    };
    let Some(value) = said(fields, class) else { return Ok(None) };
    let Some(value) = said(object(value, class.to_owned())?, "blkioQOS") else { return Ok(None) };
    object(value, format!("{class}.blkioQOS")).map(Some)
}

/// The fault of a class that does not support blocks but has some.
pub(crate) fn refused(fields: &Map<String, Value>, class: &str) -> Option<Fault> {
    let given = match of_class(fields, class) {
        Ok(given) => given?,
        Err(fault) => return Some(fault.counts(Meanwhile::WithoutIt)),
    };
    let is_enabled = said(given, "enable").is_some_and(|enable| *enable != Value::Bool(false));
    let has_blocks = said(given, "blocks").and_then(Value::as_array).is_some_and(|blocks| !blocks.is_empty());
    let way_out = format!(
        "limits are of batch (beClass.blkioQOS) or of a pod: give pods of this class the annotation {ANNOTATION}, and leave it out here"
    );
    (is_enabled && has_blocks)
        .then(|| fault(format!("{class}.blkioQOS"), "enabled", way_out).counts(Meanwhile::WithoutIt))
}

/// The blocks of a class; `None` if the class does not set `enable`.
pub(crate) fn group<T: Asks>(
    fields: &Map<String, Value>,
    class: &str,
    last: Option<&Vec<Block<T>>>,
    faults: &mut Vec<Fault>,
) -> Option<Vec<Block<T>>> {
    let given = match of_class(fields, class) {
        Ok(given) => given?,
        Err(fault) => {
            faults.push(fault);
            return last.cloned();
        }
    };
    faults.extend(unknown(given, &OF_GROUPS, &[], &format!("{class}.blkioQOS")));
    let enable = said(given, "enable")?;
    let Some(is_enabled) = enable.as_bool() else {
        faults.push(fault(format!("{class}.blkioQOS.enable"), enable, "write `true` or `false`"));
        return last.cloned();
    };
    let path = format!("{class}.blkioQOS.blocks");
    if !is_enabled {
        return Some(Vec::new());
    }
    match said(given, "blocks") {
        None => Some(Vec::new()),
        Some(Value::Array(items)) => Some(blocks(items, &path, last.map_or(&[][..], Vec::as_slice), false, faults)),
        Some(value) => {
            faults.push(fault(path, value, "give a list of blocks"));
            last.cloned()
        }
    }
}

/// Reads a list of blocks. A block without a valid type or name is left out; the others are read.
pub(crate) fn blocks<T: Asks>(
    items: &[Value],
    path: &str,
    last: &[Block<T>],
    is_of_pod: bool,
    faults: &mut Vec<Fault>,
) -> Vec<Block<T>> {
    let mut of_list = Faults::default();
    let left_out = items.len().saturating_sub(BLOCKS);
    if left_out > 0 {
        let value = format!("a list of {BLOCKS} blocks and {left_out} more, which do not count");
        of_list.push(fault(path.to_owned(), value, format!("give at most {BLOCKS}")).counts(Meanwhile::WithoutIt));
    }
    let mut read = Vec::new();
    // Several blocks may have one name: each stands for the one before it in the same order.
    let mut last: Vec<&Block<T>> = last.iter().collect();
    for (index, item) in items.iter().take(BLOCKS).enumerate() {
        match block(item, &format!("{path}[{index}]"), &mut last, is_of_pod, &mut of_list) {
            Ok(block) => read.push(block),
            Err(fault) => of_list.push(fault.counts(Meanwhile::WithoutBlock)),
        }
    }
    faults.extend(of_list.of_list(path));
    read
}

/// Whether exactly one of the blocks is of this kind. Invalid blocks count as well.
pub(crate) fn has_one(items: &[Value], kind: Kind) -> bool {
    let of_kind = |item: &&Value| item.as_object().and_then(|fields| kind_of(said(fields, "type")?)) == Some(kind);
    items.iter().filter(of_kind).take(2).count() == 1
}

fn kind_of(value: &Value) -> Option<Kind> {
    Kind::ALL.into_iter().find(|kind| value.as_str() == Some(kind.as_str()))
}

fn block<T: Asks>(
    item: &Value,
    path: &str,
    last: &mut Vec<&Block<T>>,
    is_of_pod: bool,
    faults: &mut Faults,
) -> Result<Block<T>, Fault> {
    let fields = item.as_object().ok_or_else(|| fault(path.to_owned(), item, "give an object"))?;
    let at = |field: &str| format!("{path}.{field}");
    unknown(fields, &OF_BLOCKS, &[], path).into_iter().for_each(|fault| faults.push(fault));
    let kind = match said(fields, "type") {
        None => return Err(fault(at("type"), "missing", "write `device`, `volumegroup` or `podvolume`")),
        Some(value) => {
            kind_of(value).ok_or_else(|| fault(at("type"), value, "write `device`, `volumegroup` or `podvolume`"))?
        }
    };
    if kind == Kind::PodVolume && !is_of_pod {
        let way_out = format!(
            "volumes are of one pod: write it into the pod's annotation {ANNOTATION}, or name a `device` or `volumegroup`"
        );
        return Err(fault(at("type"), "\"podvolume\"", way_out));
    }
    let way_out = match kind {
        Kind::Device => "give a device, e.g. \"/dev/sda\"",
        Kind::VolumeGroup => "give the name of an LVM volume group",
        Kind::PodVolume => "give the name of a volume",
    };
    let name = match said(fields, "name") {
        None => return Err(fault(at("name"), "missing", way_out)),
        Some(value) => {
            let name = value.as_str().map(str::trim).filter(|name| (1..=NAME_BYTES).contains(&name.len()));
            name.ok_or_else(|| fault(at("name"), value, way_out))?.to_owned()
        }
    };
    let nothing = Map::new();
    let given = match said(fields, "ioCfg") {
        None => &nothing,
        Some(value) => value.as_object().ok_or_else(|| fault(at("ioCfg"), value, "give an object"))?,
    };
    let same = last.iter().position(|block| block.kind == kind && block.name == name);
    let last = same.map(|place| &last.remove(place).asks);
    let asks = T::read(&mut Given { path: at("ioCfg"), fields: given, faults }, last);
    Ok(Block { kind, name, asks })
}

/// The unparsed `ioCfg`.
pub(crate) struct Given<'a> {
    path: String,
    fields: &'a Map<String, Value>,
    faults: &'a mut Faults,
}

impl Given<'_> {
    /// Reads a field; `Err` if its value is invalid, which is recorded as a fault.
    fn read<T>(
        &mut self,
        name: &str,
        way_out: &str,
        parse: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refused> {
        let Some(value) = said(self.fields, name) else { return Ok(None) };
        parse(value).map(Some).ok_or_else(|| {
            self.faults.push(fault(format!("{}.{name}", self.path), value, way_out));
            Refused
        })
    }

    fn number(&mut self, name: &str, least: u64, most: u64) -> Result<Option<u64>, Refused> {
        let way_out = format!("give a whole number, {least} to {most}");
        self.read(name, &way_out, |value| value.as_u64().filter(|number| (least..=most).contains(number)))
    }

    /// Reads a number of 32 bits.
    fn small(&mut self, name: &str, least: u32, most: u32) -> Result<Option<u32>, Refused> {
        let number = self.number(name, least.into(), most.into())?;
        Ok(number.and_then(|number| u32::try_from(number).ok()))
    }

    /// Reads a limit; 0 means no limit. The kernel refuses 1.
    fn limit(&mut self, name: &str, last: Option<u64>) -> Option<u64> {
        let way_out = "give 0 for no limit, or 2 to 9223372036854775807";
        let limit = |value: &Value| value.as_u64().filter(|number| *number != 1 && *number <= MOST);
        self.read(name, way_out, limit).map_or(last, |limit| limit.filter(|limit| *limit > 0))
    }

    /// Records faults for fields that belong elsewhere, and for those that nobody reads.
    fn others(&mut self, own: &[&str], elsewhere: &[&str], way_out: &str) {
        for name in elsewhere {
            if let Some(value) = said(self.fields, name) {
                self.faults.push(fault(format!("{}.{name}", self.path), value, way_out));
            }
        }
        unknown(self.fields, own, elsewhere, &self.path).into_iter().for_each(|fault| self.faults.push(fault));
    }
}

/// The value of a field is invalid.
struct Refused;

impl Asks for Share {
    fn read(given: &mut Given<'_>, last: Option<&Self>) -> Self {
        let last = last.copied().unwrap_or(Self::NONE);
        // The kernel counts operations in 32 bits, and the largest number means no limit.
        let is_one = |limit: &u64| *limit < u64::from(u32::MAX);
        let limits = IoLimits {
            read_bps: given.limit("readBPS", last.limits.read_bps),
            write_bps: given.limit("writeBPS", last.limits.write_bps),
            read_iops: given.limit("readIOPS", last.limits.read_iops).filter(is_one),
            write_iops: given.limit("writeIOPS", last.limits.write_iops).filter(is_one),
        };
        let weight = given.small("ioWeightPercent", 1, 100);
        let weight = weight.map_or(last.weight, |weight| weight.filter(|weight| u64::from(*weight) < DEFAULT_WEIGHT));
        let way_out = "it is of a device: write it into cgroupRoot.blkioQOS, and leave it out here";
        given.others(&OF_SHARES, &[&OF_DEVICES[..], &OF_MODEL].concat(), way_out);
        Self { limits, weight }
    }
}

impl Asks for Cost {
    fn read(given: &mut Given<'_>, last: Option<&Self>) -> Self {
        let (last, own) = (last.copied().unwrap_or_default(), Self::default().latency);
        let mut usec = |name, last, own| given.small(name, 1, u32::MAX).map_or(last, |usec| usec.unwrap_or(own));
        let read_latency_usec = usec("readLatency", last.latency.read_latency_usec, own.read_latency_usec);
        let write_latency_usec = usec("writeLatency", last.latency.write_latency_usec, own.write_latency_usec);
        let mut percent = |name, last, own| {
            let hundredths = |percent: Option<u32>| percent.map_or(own, |percent| percent.saturating_mul(100));
            given.small(name, 0, 100).map_or(last, hundredths)
        };
        let read_permyriad = percent("readLatencyPercent", last.latency.read_permyriad, own.read_permyriad);
        let write_permyriad = percent("writeLatencyPercent", last.latency.write_permyriad, own.write_permyriad);
        let way_out = "it is of processes: write it into beClass.blkioQOS, and leave it out here";
        given.others(&[&OF_DEVICES[..], &OF_MODEL].concat(), &OF_SHARES, way_out);
        let latency = IoLatency {
            read_permyriad,
            read_latency_usec,
            write_permyriad,
            write_latency_usec,
            ..Self::default().latency
        };
        let model = match given.read("enableUserModel", "write `true` or `false`", Value::as_bool) {
            Ok(Some(true)) => model(given).or(last.model),
            Ok(Some(false) | None) => None,
            Err(Refused) => last.model,
        };
        Self { latency, model }
    }
}

/// All six numbers, or none. The kernel accepts more values than this: 0 makes requests free, and a number near 2^64 causes a division by
/// zero before Linux 6.3.
fn model(given: &mut Given<'_>) -> Option<IoCostModel> {
    let way_out = "with enableUserModel give all six numbers, each 1 to 9223372036854775807";
    let numbers = OF_MODEL.map(|name| match said(given.fields, name) {
        None => {
            given.faults.push(fault(format!("{}.{name}", given.path), "missing", way_out));
            None
        }
        Some(_) => given.read(name, way_out, |value| value.as_u64().filter(|n| (1..=MOST).contains(n))).ok().flatten(),
    });
    let [read_bps, read_seq_iops, read_rand_iops, write_bps, write_seq_iops, write_rand_iops] = numbers;
    Some(IoCostModel {
        read_bps: read_bps?,
        read_seq_iops: read_seq_iops?,
        read_rand_iops: read_rand_iops?,
        write_bps: write_bps?,
        write_seq_iops: write_seq_iops?,
        write_rand_iops: write_rand_iops?,
    })
}
