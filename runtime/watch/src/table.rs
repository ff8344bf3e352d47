//! The list of containers: a filter, an order, and as many columns as there is room for.

use std::cmp::Ordering;

use crate::amount::bytes;
use crate::moment::{Moment, Row};

/// Order of the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// CPUs used, the most first.
    #[default]
    Cpu,
    /// Periods throttled, the most first.
    Throttled,
    /// Memory in use, the most first.
    Memory,
    /// The longest wait, for CPUs, memory or IO.
    Pressure,
    /// The name.
    Name,
}

impl Order {
    /// All orders, in the sequence in which a key goes through them.
    pub const ALL: [Self; 5] = [Self::Cpu, Self::Throttled, Self::Memory, Self::Pressure, Self::Name];

    /// Name of the order.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Throttled => "throttled",
            Self::Memory => "memory",
            Self::Pressure => "pressure",
            Self::Name => "name",
        }
    }

    /// Describes the order in a few words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Cpu => "CPUs used",
            Self::Throttled => "Throttled periods",
            Self::Memory => "Memory in use",
            Self::Pressure => "Longest wait for any resource",
            Self::Name => "Name of the container",
        }
    }

    /// The order of that name.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|order| order.as_str() == word)
    }

    /// The next order; the first follows the last.
    #[must_use]
    pub fn next(self) -> Self {
        let place = Self::ALL.iter().position(|order| *order == self).unwrap_or(0);
        Self::ALL[(place + 1) % Self::ALL.len()]
    }

    fn compare(self, one: &Row, other: &Row) -> Ordering {
        let by = |of: fn(&Row) -> Option<f64>| of(other).unwrap_or(-1.0).total_cmp(&of(one).unwrap_or(-1.0));
        let first = match self {
            Self::Cpu => by(|row| row.cpus),
            Self::Throttled => by(|row| row.throttled_percent),
            Self::Memory => other.memory_bytes.cmp(&one.memory_bytes),
            Self::Pressure => {
                by(|row| row.pressure.map(|wait| wait.cpu_percent.max(wait.memory_percent).max(wait.io_percent)))
            }
            Self::Name => Ordering::Equal,
        };
        first.then_with(|| (&one.pod, &one.container).cmp(&(&other.pod, &other.container)))
    }
}

/// Which containers are listed: those that meet all conditions that are set.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only containers in this namespace.
    pub namespace: Option<String>,
    /// Only containers whose name contains this; empty = all.
    pub name: String,
    /// Only containers for which this policy holds a knob.
    pub policy: Option<String>,
}

impl Filter {
    /// Whether a container is listed.
    pub fn takes(&self, row: &Row) -> bool {
        let namespace = row.pod.split('/').next().unwrap_or_default();
        self.namespace.as_ref().is_none_or(|wanted| wanted == namespace)
            && (self.name.is_empty() || row.name().contains(&self.name))
            && self.policy.as_ref().is_none_or(|policy| row.held.iter().any(|held| held.policy == *policy))
    }
}

/// The containers that are listed, in order.
pub fn rows<'a>(moment: &'a Moment, filter: &Filter, order: Order) -> Vec<&'a Row> {
    let mut rows: Vec<&Row> = moment.containers.iter().filter(|row| filter.takes(row)).collect();
    rows.sort_by(|one, other| order.compare(one, other));
    rows
}

/// A column of the list.
pub struct Column {
    /// Title of the column.
    pub title: &'static str,
    /// Width in characters.
    pub width: u16,
    /// Columns with a higher rank are left out first if there is little room.
    rank: u8,
    /// Text of the cell in a row.
    pub cell: fn(&Row) -> String,
}

/// Title of the column with the names.
pub(crate) const NAME_TITLE: &str = "POD/CONTAINER";
/// Minimum width of the names, which take what is left.
const NAME_WIDTH: u16 = 22;
/// Width above which a column of reasons is shown.
const REASON_WIDTH: u16 = 24;

/// All columns but the names.
const COLUMNS: [Column; 9] = [
    Column { title: "CLASS", width: 6, rank: 6, cell: |row| row.class.clone() },
    Column { title: "CPU", width: 6, rank: 0, cell: |row| row.cpus.map_or_else(unknown, |cpus| format!("{cpus:.2}")) },
    Column { title: "QUOTA", width: 13, rank: 2, cell: quota },
    Column { title: "THROTTLED", width: 9, rank: 1, cell: |row| percent(row.throttled_percent) },
    Column { title: "MEMORY", width: 10, rank: 3, cell: |row| row.memory_bytes.map_or_else(unknown, bytes) },
    Column { title: "LIMIT", width: 10, rank: 5, cell: |row| row.memory_limit_bytes.map_or_else(unknown, bytes) },
    Column { title: "WAITS C/M/IO %", width: 14, rank: 4, cell: pressure },
    Column {
        title: "LOCAL",
        width: 6,
        rank: 7,
        cell: |row| row.local_percent.map_or_else(unknown, |share| format!("{share} %")),
    },
    Column { title: "HELD", width: 24, rank: 8, cell: held },
];

fn unknown() -> String {
    "-".to_owned()
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(unknown, |share| format!("{share:.0} %"))
}

/// The quota in force, followed by the baseline if it differs.
fn quota(row: &Row) -> String {
    let cpus = |cpus: Option<f64>| cpus.map_or_else(|| "none".to_owned(), |cpus| format!("{cpus:.2}"));
    match row.quota {
        None => unknown(),
        Some(quota) if quota.cpus == quota.baseline_cpus => cpus(quota.cpus),
        Some(quota) => format!("{} ({})", cpus(quota.cpus), cpus(quota.baseline_cpus)),
    }
}

fn pressure(row: &Row) -> String {
    row.pressure.map_or_else(unknown, |wait| {
        format!("{:.0} {:.0} {:.0}", wait.cpu_percent, wait.memory_percent, wait.io_percent)
    })
}

/// The number of knobs that each policy holds, whether the pod is paused, and the number of refused settings.
fn held(row: &Row) -> String {
    let mut policies: Vec<(&str, usize)> = Vec::new();
    for held in row.held.iter() {
        match policies.iter_mut().find(|(policy, _)| *policy == held.policy) {
            Some((_, knobs)) => *knobs += 1,
            None => policies.push((&held.policy, 1)),
        }
    }
    let mut text: Vec<String> = policies.iter().map(|(policy, knobs)| format!("{policy} {knobs}")).collect();
    if row.paused {
        text.insert(0, "paused".to_owned());
    }
    if !row.refused.is_empty() {
        text.push(format!("{} refused", row.refused.len()));
    }
    text.join(", ")
}

/// The reason of the first remark; else that of the latest setting; else why the first refused setting is not in force.
pub fn why(row: &Row) -> String {
    if let Some(remark) = row.remarks.first() {
        return remark.why.clone();
    }
    let refused =
        row.refused.first().map(|refused| format!("{} is not {}: {}", refused.knob, refused.wanted, refused.why));
    row.last_decision().map(|held| held.reason.clone()).or(refused).unwrap_or_default()
}

/// The columns beside the names that fit into `width` characters, in order, and the widths for the names and for a reason behind all.
pub fn fitting(width: u16) -> (Vec<&'static Column>, u16, Option<u16>) {
    let mut ranked: Vec<&Column> = COLUMNS.iter().collect();
    ranked.sort_by_key(|column| column.rank);
    let mut left = width.saturating_sub(NAME_WIDTH);
    let mut taken: Vec<u8> = Vec::new();
    for column in ranked {
        let Some(rest) = left.checked_sub(column.width + 1) else { break };
        left = rest;
        taken.push(column.rank);
    }
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| taken.contains(&column.rank)).collect();
    let is_all = columns.len() == COLUMNS.len();
    // The names first get up to as much again, then the reason all that is left.
    let more = left.min(NAME_WIDTH);
    match is_all.then(|| left - more).filter(|rest| *rest > REASON_WIDTH) {
        Some(rest) => (columns, NAME_WIDTH + more, Some(rest - 1)),
        None => (columns, NAME_WIDTH + left, None),
    }
}

/// The list as text, for a terminal of `width` characters.
pub fn text(rows: &[&Row], width: u16) -> String {
    let (columns, names, reason) = fitting(width);
    let longest = rows.iter().map(|row| row.name().chars().count()).max().unwrap_or(0).max(NAME_TITLE.len());
    let names = usize::from(names).min(longest);
    let line = |name: String, cells: Vec<String>, why: String| {
        let mut line = format!("{name:names$}");
        for (column, cell) in columns.iter().zip(cells) {
            line.push_str(&format!(" {cell:0$}", usize::from(column.width)));
        }
        if reason.is_some() {
            line.push_str(&format!(" {why}"));
        }
        format!("{}\n", line.trim_end())
    };
    let titles = columns.iter().map(|column| column.title.to_owned()).collect();
    let mut text = line(NAME_TITLE.to_owned(), titles, "WHY".to_owned());
    for row in rows {
        let cells = columns.iter().map(|column| (column.cell)(row)).collect();
        text.push_str(&line(shortened(&row.name(), names), cells, why(row)));
    }
    text
}

/// Shortens a name at its beginning, because its end tells more.
pub(crate) fn shortened(name: &str, width: usize) -> String {
    let letters = name.chars().count();
    if letters <= width {
        return name.to_owned();
    }
    std::iter::once('…').chain(name.chars().skip(letters + 1 - width.max(1))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moment::tests::moment;

    fn names(filter: &Filter, order: Order) -> Vec<String> {
        rows(&moment(), filter, order).into_iter().map(Row::name).collect()
    }

    #[test]
    fn containers_are_listed_by_what_is_asked_for() {
        let [batch, web] = ["default/batch/job", "shop/web/app"];
        for (order, expected) in [
            (Order::Cpu, [batch, web]),
            (Order::Throttled, [web, batch]),
            (Order::Memory, [batch, web]),
            (Order::Pressure, [web, batch]),
            (Order::Name, [batch, web]),
        ] {
            assert_eq!(names(&Filter::default(), order), expected, "{}", order.as_str());
        }
        let all = std::iter::successors(Some(Order::Cpu), |order| Some(order.next())).take(6);
        assert_eq!(
            all.map(Order::as_str).collect::<Vec<_>>(),
            ["cpu", "throttled", "memory", "pressure", "name", "cpu"]
        );
    }

    #[test]
    fn a_filter_takes_those_for_which_all_of_it_holds() {
        let of = |namespace: Option<&str>, name: &str, policy: Option<&str>| {
            let filter = Filter {
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
                policy: policy.map(str::to_owned),
            };
            names(&filter, Order::Name).len()
        };
        assert_eq!(of(None, "", None), 2);
        assert_eq!(of(Some("shop"), "", None), 1);
        assert_eq!(of(Some("sho"), "", None), 0);
        assert_eq!(of(None, "web/app", None), 1);
        assert_eq!(of(None, "", Some("cpu-burst")), 1);
        assert_eq!(of(Some("default"), "", Some("cpu-burst")), 0);
    }

    #[test]
    fn columns_go_where_there_is_no_room_for_them() {
        let titles = |width: u16| {
            let (columns, names, reason) = fitting(width);
            let taken: u16 = columns.iter().map(|column| column.width + 1).sum();
            assert!(names + taken + reason.map_or(0, |reason| reason + 1) <= width.max(NAME_WIDTH), "{width}");
            (columns.iter().map(|column| column.title).collect::<Vec<_>>().join(" "), reason.is_some())
        };
        for (width, expected) in [
            (20, ("", false)),
            (60, ("CPU QUOTA THROTTLED", false)),
            (80, ("CPU QUOTA THROTTLED MEMORY WAITS C/M/IO %", false)),
            (100, ("CLASS CPU QUOTA THROTTLED MEMORY LIMIT WAITS C/M/IO %", false)),
            (220, ("CLASS CPU QUOTA THROTTLED MEMORY LIMIT WAITS C/M/IO % LOCAL HELD", true)),
        ] {
            let (shown, has_reason) = titles(width);
            assert_eq!((shown.as_str(), has_reason), expected, "{width}");
        }
        (0..300).for_each(|width| drop(titles(width)));
    }

    #[test]
    fn text_is_as_wide_as_it_may_be() {
        let moment = moment();
        let rows = rows(&moment, &Filter::default(), Order::Cpu);
        insta::assert_snapshot!(format!("{}\n{}", text(&rows, 60), text(&rows, 200)));
    }

    #[test]
    fn the_end_of_a_long_name_is_shown() {
        assert_eq!(shortened("shop/web/app", 12), "shop/web/app");
        assert_eq!(shortened("shop/web/app", 6), "…b/app");
        assert_eq!(shortened("shop/web/app", 0), "…");
    }

    #[test]
    fn what_qosm_changed_stands_before_what_was_there() {
        let moment = moment();
        let web = &moment.containers[1];
        let cells: Vec<String> = COLUMNS.iter().map(|column| (column.cell)(web)).collect();
        assert_eq!(
            cells,
            [
                "LS",
                "1.50",
                "1.50 (1.00)",
                "50 %",
                "900.0 MiB",
                "1.0 GiB",
                "25 2 0",
                "98 %",
                "cpu-burst 1, memory-qos 1, 1 refused"
            ]
        );
        assert_eq!(why(web), "throttled in 50 % of the periods and not raised: its allowance is used up");
        let done = Row { remarks: Vec::new(), ..web.clone() };
        assert_eq!(why(&done), "throttled in 50 % of 10 periods");
    }
}
