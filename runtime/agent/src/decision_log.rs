//! The decision log: one line of JSON per decision, in the form of OPA's decision log as far as that fits. External tools rotate the file:
//! lines are appended, so that a file that is copied and then truncated loses nothing.

use std::io::{self, Write};

use qosm_model::problem::chain;
use serde::Serialize;

use crate::now::Now;
use crate::report::moment;
use crate::step::Step;

/// Writes decisions as lines of JSON.
pub struct DecisionLog {
    out: Box<dyn Write + Send>,
    node: String,
    /// Prefix of the IDs of this agent's decisions: the time of its first step, in milliseconds since the epoch.
    began: Option<i64>,
    decisions: u64,
    /// Whether the last write failed. A failure is logged once.
    has_failed: bool,
}

/// A line. The fields up to `timestamp` have OPA's names and meaning.
#[derive(Serialize)]
struct Line<'a, T> {
    labels: Labels<'a>,
    decision_id: String,
    /// `POLICY/KIND` of the decision.
    path: String,
    result: &'a T,
    timestamp: String,
    /// `knob`, `refusal`, `migration`, `class`, `resource`, `eviction` or `shadow`.
    kind: &'static str,
}

#[derive(Serialize)]
struct Labels<'a> {
    app: &'static str,
    version: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    node: &'a str,
}

impl DecisionLog {
    /// Creates a log that writes to `out`. The node's name is on each line, unless it is empty.
    pub fn new(out: Box<dyn Write + Send>, node: String) -> Self {
        Self { out, node, began: None, decisions: 0, has_failed: false }
    }

    /// Writes the decisions of a step. An error is logged once, and the lines are lost: no decision waits for its log.
    pub(crate) fn step(&mut self, step: &Step, now: Now) {
        let lines = self.lines(step, now);
        if lines.as_ref().is_ok_and(String::is_empty) {
            return;
        }
        let written = lines.and_then(|text| {
            // The last write may have ended in the middle of a line.
            if self.has_failed {
                self.out.write_all(b"\n")?;
            }
            self.out.write_all(text.as_bytes())?;
            self.out.flush()
        });
        match written {
            Ok(()) => self.has_failed = false,
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    tracing::warn!(error = chain(&error), "decisions are not logged");
                }
            }
        }
    }

    fn lines(&mut self, step: &Step, now: Now) -> io::Result<String> {
        self.began.get_or_insert(now.wall.0);
        let mut text = String::new();
        for decision in &step.decisions {
            self.line(&mut text, "knob", &decision.policy, decision, now)?;
        }
        for decision in &step.refused {
            self.line(&mut text, "refusal", &decision.policy, decision, now)?;
        }
        for decision in &step.migrations {
            self.line(&mut text, "migration", &decision.policy, decision, now)?;
        }
        for decision in &step.classes {
            self.line(&mut text, "class", &decision.policy, decision, now)?;
        }
        for decision in &step.resources {
            self.line(&mut text, "resource", &decision.policy, decision, now)?;
        }
        for decision in &step.evictions {
            self.line(&mut text, "eviction", &decision.policy, decision, now)?;
        }
        for decision in &step.shadows {
            self.line(&mut text, "shadow", &decision.policy, decision, now)?;
        }
        Ok(text)
    }

    fn line(
        &mut self,
        text: &mut String,
        kind: &'static str,
        policy: &str,
        result: &impl Serialize,
        now: Now,
    ) -> io::Result<()> {
        self.decisions += 1;
        let line = Line {
            labels: Labels { app: "qosm", version: env!("CARGO_PKG_VERSION"), node: &self.node },
            decision_id: format!("{:x}-{}", self.began.unwrap_or_default(), self.decisions),
            path: format!("{policy}/{kind}"),
            result,
            timestamp: moment(now.wall),
            kind,
        };
        text.push_str(&serde_json::to_string(&line)?);
        text.push('\n');
        Ok(())
    }
}

impl std::fmt::Debug for DecisionLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DecisionLog")
            .field("node", &self.node)
            .field("decisions", &self.decisions)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use serde_json::Value;

    use super::*;
    use crate::report::{Decision, WireValue};

    /// The bytes written, and the number of bytes that still fit.
    #[derive(Clone)]
    struct File(Arc<Mutex<(Vec<u8>, usize)>>);

    impl File {
        fn with_room(bytes: usize) -> Self {
            Self(Arc::new(Mutex::new((Vec::new(), bytes))))
        }

        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().0.clone()).unwrap()
        }
    }

    impl Write for File {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let (written, room) = &mut *self.0.lock().unwrap();
            let taken = bytes.len().min(*room);
            if taken == 0 {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            written.extend_from_slice(&bytes[..taken]);
            *room -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn decision() -> Decision {
        Decision {
            level: "container".to_owned(),
            tier: None,
            namespace: Some("shop".to_owned()),
            pod: Some("web".to_owned()),
            container: Some("app".to_owned()),
            knob: "cpu.quota".to_owned(),
            file: "cpu.max".to_owned(),
            path: "/sys/fs/cgroup/x/cpu.max".to_owned(),
            support: "native".to_owned(),
            emulation: None,
            current: Some(WireValue::Number(100_000)),
            value: WireValue::Number(150_000),
            policy: "cpu-burst".to_owned(),
            module: "cpu-burst@0.1.0 sha256:0".to_owned(),
            reason: "throttled\nin 50 %".to_owned(),
            adjusted: None,
            error: None,
        }
    }

    #[test]
    fn each_decision_is_a_line_with_its_reason_and_its_module() {
        let file = File::with_room(usize::MAX);
        let mut log = DecisionLog::new(Box::new(file.clone()), "node-7".to_owned());
        let step = Step { decisions: vec![decision()], refused: vec![decision()], ..Step::default() };
        log.step(&step, Now::default());
        log.step(&Step::default(), Now::default());
        let text = file.text();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        for (line, kind, id) in [(&lines[0], "knob", "0-1"), (&lines[1], "refusal", "0-2")] {
            assert_eq!(line["path"], format!("cpu-burst/{kind}"));
            assert_eq!((line["kind"].as_str(), line["decision_id"].as_str()), (Some(kind), Some(id)));
            assert_eq!(line["labels"]["node"], "node-7");
            assert_eq!(line["timestamp"], "1970-01-01T00:00:00Z");
            assert_eq!(line["result"]["value"], 150_000);
            assert_eq!(line["result"]["module"], "cpu-burst@0.1.0 sha256:0");
        }
    }

    #[test]
    fn a_full_disk_stops_nothing_and_spoils_no_later_line() {
        let file = File::with_room(100);
        let mut log = DecisionLog::new(Box::new(file.clone()), String::new());
        let step = Step { decisions: vec![decision()], ..Step::default() };
        log.step(&step, Now::default());
        log.step(&Step::default(), Now::default());
        assert!(log.has_failed, "nothing to write is no success");
        file.0.lock().unwrap().1 = usize::MAX;
        log.step(&step, Now::default());
        assert!(!log.has_failed);
        let text = file.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[0].len()), (2, 100), "{text}");
        assert_eq!(serde_json::from_str::<Value>(lines[1]).unwrap()["decision_id"], "0-2");
    }
}
