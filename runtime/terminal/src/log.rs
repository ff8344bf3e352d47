//! The log on standard error, and its filter `QOSM_LOG`.

use clap::ValueEnum;
use tracing_subscriber::fmt::format::FmtSpan;

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For a log collector.
    Json,
}

/// Logs to standard error with the filter in `QOSM_LOG`, else from level `info` on. A program calls it once.
pub fn start(format: LogFormat) {
    let (filter, refused) = match log_filter("info") {
        Ok(filter) => (filter, None),
        Err(error) => (tracing_subscriber::EnvFilter::new("info"), Some(error)),
    };
    // `kube_client` logs every failed request as an error. Its caller reports the outcome with advice.
    let filter = match "kube_client::client=off".parse() {
        Ok(directive) if !filter.to_string().contains("kube_client") => filter.add_directive(directive),
        _ => filter,
    };
    // A span that passes the filter logs its duration when it ends.
    let base =
        tracing_subscriber::fmt().with_env_filter(filter).with_span_events(FmtSpan::CLOSE).with_writer(std::io::stderr);
    match format {
        LogFormat::Text => {
            use std::io::IsTerminal;
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            base.with_ansi(colour).init();
        }
        LogFormat::Json => base.json().init(),
    }
    // An invalid filter must not keep the agent from running.
    if let Some(error) = refused {
        tracing::error!("{error}; `info` is used instead");
    }
}

/// Logs only the log lines of policy modules, unless `QOSM_LOG` sets another filter: for trying out a module. A program
/// calls it once.
pub fn modules() {
    let filter = log_filter(ONLY_MODULES).unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(ONLY_MODULES));
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    base.without_time().with_target(false).with_ansi(false).init();
}

/// Filter for the log lines of modules.
const ONLY_MODULES: &str = "off,qosm_agent::module_log=info";

/// The filter in `QOSM_LOG`, or `else_this`.
///
/// # Errors
///
/// The invalid part of the filter.
fn log_filter(else_this: &str) -> Result<tracing_subscriber::EnvFilter, String> {
    let given = match std::env::var("QOSM_LOG") {
        Ok(given) if !given.trim().is_empty() => given,
        Ok(_) | Err(std::env::VarError::NotPresent) => else_this.to_owned(),
        Err(std::env::VarError::NotUnicode(_)) => return Err("QOSM_LOG is not UTF-8".to_owned()),
    };
    filter_of(&given)
}

fn filter_of(given: &str) -> Result<tracing_subscriber::EnvFilter, String> {
    const WAY_OUT: &str =
        "write a level (error, warn, info, debug, trace, off), or TARGET=LEVEL, with commas between them";
    // The crate `tracing_subscriber` parses `foo=bar=baz` as a target of that name and filters everything out.
    let wrong = directives(given).into_iter().find(|(_, equals)| *equals > 1).map(|(part, _)| part);
    let refused = |part: &str, why: &str| {
        let part = qosm_model::foreign::name(part).to_string();
        Err(format!("QOSM_LOG: `{part}` is no filter{why}; {WAY_OUT}"))
    };
    if let Some(part) = wrong {
        return refused(part, ": it has two equals signs");
    }
    match given.parse() {
        Ok(filter) => Ok(filter),
        Err(error) => refused(given, &format!(" ({error})")),
    }
}

/// The parts between commas, each with its number of equals signs. Text in brackets, such as fields of spans, is ignored.
fn directives(given: &str) -> Vec<(&str, usize)> {
    let (mut parts, mut begin, mut equals, mut depth) = (Vec::new(), 0, 0, 0_usize);
    for (at, char) in given.char_indices() {
        match char {
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            '=' if depth == 0 => equals += 1,
            ',' if depth == 0 => {
                parts.push((&given[begin..at], equals));
                (begin, equals) = (at + 1, 0);
            }
            _ => {}
        }
    }
    parts.push((&given[begin..], equals));
    parts
}

#[cfg(test)]
mod tests {
    use super::{directives, filter_of};

    #[test]
    fn a_filter_with_a_slip_is_refused_with_a_clear_word() {
        for good in ["info", "qosm_agent=debug,info", "off,qosm_agent::module_log=info", "warn,x[span]=debug"] {
            assert!(filter_of(good).is_ok(), "{good}");
        }
        assert_eq!(directives("warn,x[span{a=b,c=d}]=debug"), [("warn", 0), ("x[span{a=b,c=d}]=debug", 1)]);
        for (bad, word) in [
            ("foo=bar=baz", "`foo=bar=baz` is no filter: it has two equals signs; write a level"),
            ("info,a=b=c", "`a=b=c` is no filter"),
            ("qosm_agent=loud", "`qosm_agent=loud` is no filter"),
        ] {
            let error = filter_of(bad).err().unwrap_or_default();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
