//! A list, and the selection of its rows.

use std::time::Duration;

use anyhow::bail;
use qosm_terminal::print;
use serde_json::Value;

/// Rows with an optional head, a text below them, and the JSON document.
#[derive(Clone, Debug, Default)]
pub(super) struct Listing {
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
    pub(super) more: String,
    pub(super) document: Value,
}

impl Listing {
    /// The list as text.
    pub(super) fn text(&self) -> String {
        if self.head.is_empty() {
            let lines: String = self.rows.iter().map(|row| format!("{}\n", row.join(" "))).collect();
            return lines + &self.more;
        }
        print::table(&self.head, self.rows.iter().cloned()) + &self.more
    }

    /// The cells of a row without those of these columns.
    pub(super) fn lasting<'a>(&self, row: &'a [String], without: &[&str]) -> Vec<&'a String> {
        let is_lasting = |place: usize| self.head.get(place).is_none_or(|title| !without.contains(title));
        row.iter().enumerate().filter(|(place, _)| is_lasting(*place)).map(|(_, cell)| cell).collect()
    }
}

/// The selection of rows, and how they are shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    /// Names to select; empty selects all.
    pub(super) names: &'a [String],
    pub(super) namespace: Option<&'a str>,
    pub(super) policy: Option<&'a str>,
    pub(super) is_wide: bool,
    pub(super) now: jiff::Timestamp,
}

impl Wanted<'_> {
    /// Selects rows by their name (a pod's is `namespace/name`; its name alone matches, too), namespace and policy, if they have one.
    pub(super) fn of<T>(
        &self,
        kind: &str,
        all: Vec<T>,
        name: impl Fn(&T) -> String,
        policy: impl Fn(&T) -> Option<String>,
    ) -> anyhow::Result<Vec<T>> {
        self.check_names(kind, &all.iter().map(&name).collect::<Vec<_>>())?;
        Ok(self.select(all, name, policy))
    }

    /// Fails for the first wanted name that none of `all` has.
    pub(super) fn check_names(&self, kind: &str, all: &[String]) -> anyhow::Result<()> {
        for wanted in self.names {
            if !all.iter().any(|name| is_named(name, wanted)) {
                let likeness = |name: &String| strsim::jaro_winkler(name, wanted);
                let nearest = all.iter().max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
                match nearest {
                    Some(nearest) => bail!("no {kind} `{wanted}`; the nearest is `{nearest}`"),
                    None => bail!("no {kind} `{wanted}`: there is none at all"),
                }
            }
        }
        Ok(())
    }

    /// As [`Self::of`], also if no row has a wanted name.
    pub(super) fn select<T>(
        &self,
        all: Vec<T>,
        name: impl Fn(&T) -> String,
        policy: impl Fn(&T) -> Option<String>,
    ) -> Vec<T> {
        let is_wanted = |row: &T| {
            let own = name(row);
            (self.names.is_empty() || self.names.iter().any(|wanted| is_named(&own, wanted)))
                && self.namespace.is_none_or(|namespace| own.split_once('/').is_some_and(|(of, _)| of == namespace))
                && self.policy.is_none_or(|wanted| policy(row).is_none_or(|policy| policy == wanted))
        };
        all.into_iter().filter(is_wanted).collect()
    }

    /// The age of a time in RFC 3339, formatted as in kubectl; the text itself if it cannot be parsed.
    pub(super) fn age(&self, since: &str) -> String {
        let Ok(since) = since.parse::<jiff::Timestamp>() else { return since.to_owned() };
        self.age_of_millis(since.as_millisecond())
    }

    /// The age of a time in milliseconds since the epoch.
    pub(super) fn age_of_millis(&self, since: i64) -> String {
        let millis = u64::try_from(self.now.as_millisecond().saturating_sub(since)).unwrap_or(0);
        qosm_watch::age(Duration::from_millis(millis))
    }
}

/// Whether `wanted` is the name, or its part after the namespace.
fn is_named(name: &str, wanted: &str) -> bool {
    name == wanted || name.split_once('/').is_some_and(|(_, own)| own == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted<'a>(names: &'a [String], namespace: Option<&'a str>, policy: Option<&'a str>) -> Wanted<'a> {
        Wanted { names, namespace, policy, is_wide: false, now: jiff::Timestamp::UNIX_EPOCH }
    }

    fn of(wanted: &Wanted<'_>) -> Result<Vec<String>, String> {
        let all = vec![("shop/web", "cpu-burst"), ("shop/db", "memory-qos"), ("default/web", "cpu-burst")];
        let rows = wanted.of("pod", all, |row| row.0.to_owned(), |row| Some(row.1.to_owned()));
        rows.map(|rows| rows.iter().map(|row| row.0.to_owned()).collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn rows_are_those_for_which_all_holds_that_is_said() {
        let web = ["web".to_owned()];
        for (wanted, expected) in [
            (wanted(&[], None, None), vec!["shop/web", "shop/db", "default/web"]),
            (wanted(&web, None, None), vec!["shop/web", "default/web"]),
            (wanted(&web, Some("shop"), None), vec!["shop/web"]),
            (wanted(&["shop/db".to_owned()], None, None), vec!["shop/db"]),
            (wanted(&[], None, Some("memory-qos")), vec!["shop/db"]),
            (wanted(&[], Some("sho"), None), vec![]),
        ] {
            assert_eq!(of(&wanted).unwrap(), expected, "{wanted:?}");
        }
    }

    #[test]
    fn a_name_that_is_not_there_is_told_with_the_nearest() {
        let error = of(&wanted(&["shop/wbe".to_owned()], None, None)).unwrap_err();
        assert_eq!(error, "no pod `shop/wbe`; the nearest is `shop/web`");
        let none = wanted(&["x".to_owned()], None, None).of("pod", Vec::<String>::new(), String::clone, |_| None);
        assert_eq!(none.unwrap_err().to_string(), "no pod `x`: there is none at all");
    }

    #[test]
    fn ages_are_short() {
        let wanted = Wanted { now: "2026-11-26T08:00:00Z".parse().unwrap(), ..wanted(&[], None, None) };
        assert_eq!(wanted.age("2026-11-26T07:56:50Z"), "3m10s");
        assert_eq!(wanted.age("2026-11-26T09:00:00Z"), "0s", "another clock");
        assert_eq!(wanted.age("yesterday"), "yesterday");
    }
}
