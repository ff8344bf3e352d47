//! The log on standard error, and its filter `QOSM_LOG`.

use clap::ValueEnum;
use tracing_subscriber::fmt::format::FmtSpan;

/// The form of the log.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub enum LogFormat {
    /// For eyes.
    #[default]
    Text,
    /// For a log collector.
    Json,
}

/// Logs to standard error: what `QOSM_LOG` says, else from `info` on. A program calls it once.
pub fn start(format: LogFormat) {
    let (filter, refused) = match log_filter("info") {
        Ok(filter) => (filter, None),
        Err(error) => (tracing_subscriber::EnvFilter::new("info"), Some(error)),
    };
    // It logs every failed request as an error. The caller reports the outcome, with the way out.
    let filter = match "kube_client::client=off".parse() {
        Ok(directive) if !filter.to_string().contains("kube_client") => filter.add_directive(directive),
        _ => filter,
    };
    // A span that the filter lets through says at its end how long it took.
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
    // A filter with a slip in it is no reason to leave a node without its agent.
    if let Some(error) = refused {
        tracing::error!("{error}; `info` counts instead");
    }
}

/// Logs what policy modules say, and nothing else unless `QOSM_LOG` says so: to try one out. A program calls it once.
pub fn modules() {
    let filter = log_filter(ONLY_MODULES).unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(ONLY_MODULES));
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    base.without_time().with_target(false).with_ansi(false).init();
}

/// What modules say.
const ONLY_MODULES: &str = "off,qosm_agent::module_log=info";

/// The filter that QOSM_LOG holds, or this one.
///
/// # Errors
///
/// What of it is no filter.
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
    // The crate takes `foo=bar=baz` for a target of that name and filters everything out.
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

/// The parts between commas, and how many equals signs each has; what stands in brackets, as fields of spans do, is not looked at.
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
