//! The two formats of metrics. The client library writes OpenMetrics; clients that do not ask for it get Prometheus' older text format.

/// The part of `Accept` by which a client asks for OpenMetrics.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text";
/// The content type of OpenMetrics.
pub(super) const OPEN_METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The content type of the older text format.
pub(super) const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Converts OpenMetrics to Prometheus' text: a counter's family has the name of its series, there are no units, and an info is a gauge.
pub(super) fn prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help: Option<(&str, &str)> = None;
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), meaning) => help = Some((name, meaning.unwrap_or_default())),
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                if let Some((_, meaning)) = help.take().filter(|(of, _)| *of == name) {
                    text.push_str(&format!("# HELP {name}{suffix} {meaning}\n"));
                }
                text.push_str(&format!("# TYPE {name}{suffix} {kind}\n"));
            }
            (Some("#"), ..) => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use crate::metrics::Metrics;

    #[test]
    fn both_forms_say_the_same() {
        let metrics = Metrics::default();
        metrics.started(12.5);
        let series =
            |text: &str| text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect::<Vec<_>>();
        let (kind, open) = metrics.text("application/openmetrics-text; version=1.0.0, text/plain;q=0.5", "");
        assert!(kind.starts_with("application/openmetrics-text") && open.ends_with("# EOF\n"), "{open}");
        let (kind, plain) = metrics.text("text/plain", "");
        assert!(kind.starts_with("text/plain") && !plain.contains("# EOF") && !plain.contains("# UNIT"), "{plain}");
        assert_eq!(series(&plain), series(&open));
        for line in [
            "# TYPE qosm_ticks_total counter",
            "# TYPE qosm_build_info gauge",
            "# TYPE qosm_step_seconds histogram",
            "# TYPE process_cpu_seconds_total counter",
            "process_start_time_seconds 12.5",
            "qosm_knob_drift_total{knob=\"cpu.quota\",writer=\"fight\"} 0",
            "qosm_knob_refusals_total{knob=\"memory.min\",reason=\"EINVAL\"} 0",
            "qosm_evictions_total{outcome=\"refused\"} 0",
        ] {
            assert!(plain.lines().any(|own| own == line), "{line}:\n{plain}");
        }
    }
}
