//! A running policy: converts the contract's texts to the policy's types. The component and the tests both use it.

use serde::de::DeserializeOwned;

use crate::declaration::{Declaration, Declaring};
use crate::host::CallHooks;
use crate::{Host, Pod, PodFacts, PodId, Policy, Rejection, Tick};

/// A running policy. It records what the policy declared and calls the host only for differences: an evaluation that declares the same as
/// the previous one makes no host call for its settings, and settings that are no longer declared are released.
///
/// ```
/// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Session, Tick, mock};
/// # #[derive(Default)]
/// # struct Mine;
/// # impl Policy for Mine {
/// #     type Config = ();
/// #     type PodConfig = NoConfig;
/// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
/// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
/// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
/// # }
/// let mut host = mock::MockHost::default();
/// let mut session = Session::<Mine>::default();
/// session.configure(&mut host, "{}")?;
/// session.pods(&mut host, vec![mock::pod(1, "default", "web")], &[])?;
/// session.evaluate(&mut host, mock::tick(1_000))?;
/// assert!(host.leases().is_empty());
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Session<P> {
    policy: P,
    declaration: Declaration,
}

impl<P: Policy> Session<P> {
    /// Continues with `policy` in its current state, for tests of a state that is hard to reach otherwise.
    ///
    /// ```
    /// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Session, Tick, mock};
    /// # #[derive(Default)]
    /// # struct Mine;
    /// # impl Policy for Mine {
    /// #     type Config = ();
    /// #     type PodConfig = NoConfig;
    /// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
    /// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
    /// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
    /// # }
    /// let session = Session::of(Mine);
    /// ```
    pub fn of(policy: P) -> Self {
        Self { policy, declaration: Declaration::default() }
    }

    /// The policy itself, so that tests can inspect it.
    ///
    /// ```
    /// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Session, Tick, mock};
    /// # #[derive(Default)]
    /// # struct Mine;
    /// # impl Policy for Mine {
    /// #     type Config = ();
    /// #     type PodConfig = NoConfig;
    /// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
    /// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
    /// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
    /// # }
    /// let _: &Mine = Session::<Mine>::default().policy();
    /// ```
    pub fn policy(&self) -> &P {
        &self.policy
    }

    #[cfg(test)]
    pub(crate) fn policy_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// Passes the policy-level configuration, a JSON object. Blank text and `{}` stand for the default.
    ///
    /// # Errors
    ///
    /// The field that does not match its type, or the policy's own error.
    ///
    /// ```
    /// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Session, Tick, mock};
    /// # #[derive(Default)]
    /// # struct Mine;
    /// # impl Policy for Mine {
    /// #     type Config = ();
    /// #     type PodConfig = NoConfig;
    /// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
    /// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
    /// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
    /// # }
    /// let mut host = mock::MockHost::default();
    /// assert_eq!(Session::<Mine>::default().configure(&mut host, ""), Ok(()));
    /// assert!(Session::<Mine>::default().configure(&mut host, "[").is_err());
    /// ```
    pub fn configure<H: Host + 'static>(&mut self, host: &mut H, config: &str) -> Result<(), String> {
        let config = if is_blank(config) {
            P::Config::default()
        } else {
            parse(config).map_err(|fault| match fault.field.as_str() {
                "" => format!("the policy's configuration cannot be read: {}", fault.message),
                field => format!("field `{field}` of the policy's configuration: {}", fault.message),
            })?
        };
        let mut host = Declaring::new(host, &mut self.declaration, false);
        let result = self.policy.configure(&mut host, config);
        host.finish(result)
    }

    /// Passes pods. A pod whose configuration does not match its type is rejected and passed without configuration.
    ///
    /// # Errors
    ///
    /// On a node, currently never; a [`MockHost`](crate::mock::MockHost) returns the rule that the policy broke.
    ///
    /// ```
    /// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Session, Tick, mock};
    /// # #[derive(Default)]
    /// # struct Mine;
    /// # impl Policy for Mine {
    /// #     type Config = ();
    /// #     type PodConfig = NoConfig;
    /// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
    /// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
    /// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
    /// # }
    /// let web = mock::pod(1, "default", "web");
    /// let rejections = Session::<Mine>::default().pods(&mut mock::MockHost::default(), vec![web], &[])?;
    /// assert_eq!(rejections, []);
    /// # Ok::<(), String>(())
    /// ```
    pub fn pods<H: Host + 'static>(
        &mut self,
        host: &mut H,
        upserted: Vec<PodFacts>,
        removed: &[PodId],
    ) -> Result<Vec<Rejection>, String> {
        let mut host = Declaring::new(host, &mut self.declaration, false);
        host.give(&upserted, removed);
        let mut rejections = Vec::new();
        let pods = upserted
            .into_iter()
            .map(|facts| {
                let config = if is_blank(&facts.config) {
                    None
                } else {
                    parse(&facts.config)
                        .map_err(|fault| {
                            rejections.push(Rejection { pod: facts.id, field: fault.field, message: fault.message });
                        })
                        .ok()
                };
                Pod { facts, config }
            })
            .collect();
        rejections.extend(self.policy.pods(&mut host, pods, removed));
        host.finish(Ok(rejections))
    }

    /// Evaluates the policy.
    ///
    /// # Errors
    ///
    /// The error that the policy returned.
    ///
    /// ```
    /// # use qosm_sdk::{Description, Host, NoConfig, Pod, PodId, Policy, Rejection, Session, Tick, mock};
    /// # #[derive(Default)]
    /// # struct Mine;
    /// # impl Policy for Mine {
    /// #     type Config = ();
    /// #     type PodConfig = NoConfig;
    /// #     fn describe() -> Description { Description::new("mine", "0.1.0", "") }
    /// #     fn pods<H: Host>(&mut self, _: &mut H, _: Vec<Pod<NoConfig>>, _: &[PodId]) -> Vec<Rejection> { Vec::new() }
    /// #     fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> { Ok(()) }
    /// # }
    /// assert_eq!(Session::<Mine>::default().evaluate(&mut mock::MockHost::default(), mock::tick(1_000)), Ok(()));
    /// ```
    pub fn evaluate<H: Host + 'static>(&mut self, host: &mut H, tick: Tick) -> Result<(), String> {
        let mut host = Declaring::new(host, &mut self.declaration, true);
        let result = self.policy.evaluate(&mut host, tick);
        host.finish(result)
    }
}

/// A field whose value does not match its type.
struct Fault {
    field: String,
    message: String,
}

fn is_blank(json: &str) -> bool {
    matches!(json.trim_ascii(), "" | "{}")
}

fn parse<T: DeserializeOwned>(json: &str) -> Result<T, Fault> {
    serde_json::from_str(json)
        .map_err(|error| Fault { field: field_at(json, error.line(), error.column()), message: error.to_string() })
}

/// Path of the field at a line and column of `json`, both from 1, e.g. `inner.on`; empty for the document itself.
///
/// It looks at quotes and brackets only: the text before an error has already been parsed without one. A library that tracks the path while
/// it parses would make up a tenth of a small component.
fn field_at(json: &str, line: usize, column: usize) -> String {
    let mut lines_left = line.saturating_sub(1);
    let starts_after = json.bytes().position(|byte| {
        let is_there = lines_left == 0;
        lines_left = lines_left.saturating_sub((byte == b'\n').into());
        is_there
    });
    let end = starts_after.unwrap_or(json.len()).saturating_add(column).min(json.len());
    let mut path: Vec<&str> = Vec::new();
    let mut word = "";
    let mut is_key = false;
    let mut from = 0;
    while let Some((at, byte)) = json.bytes().enumerate().take(end).skip(from).find(|(_, byte)| b"\"{},".contains(byte))
    {
        from = at + 1;
        match byte {
            b'{' => {
                path.push(word);
                (word, is_key) = ("", true);
            }
            b'}' => {
                path.pop();
                (word, is_key) = ("", false);
            }
            b',' => (word, is_key) = ("", true),
            _ => {
                let length = quoted(&json.as_bytes()[from..end]);
                if is_key {
                    (word, is_key) = (json.get(from..from + length).unwrap_or(""), false);
                }
                from += length + 1;
            }
        }
    }
    path.push(word);
    let mut field = String::new();
    for part in path.into_iter().filter(|part| !part.is_empty()) {
        if !field.is_empty() {
            field.push('.');
        }
        field.push_str(part);
    }
    field
}

/// Length of a string up to its closing quote, in bytes.
fn quoted(text: &[u8]) -> usize {
    let mut is_escaped = false;
    let closing = text.iter().position(|byte| {
        let closes = *byte == b'"' && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        closes
    });
    closing.unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{Description, mock};

    #[derive(Default)]
    struct Picky {
        config: Settings,
        pods: Vec<Pod<Settings>>,
    }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
    struct Settings {
        level: u8,
        inner: Inner,
    }

    #[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
    #[serde(default)]
    struct Inner {
        on: bool,
    }

    impl Policy for Picky {
        type Config = Settings;
        type PodConfig = Settings;

        fn describe() -> Description {
            Description::new("picky", "0.1.0", "For these tests.")
        }

        fn configure<H: Host>(&mut self, _: &mut H, config: Settings) -> Result<(), String> {
            self.config = config;
            Ok(())
        }

        fn pods<H: Host>(&mut self, _: &mut H, upserted: Vec<Pod<Settings>>, _: &[PodId]) -> Vec<Rejection> {
            self.pods = upserted;
            Vec::new()
        }

        fn evaluate<H: Host>(&mut self, _: &mut H, _: Tick) -> Result<(), String> {
            Ok(())
        }
    }

    fn configured(config: &str) -> PodFacts {
        PodFacts { config: config.into(), ..mock::pod(1, "default", "web") }
    }

    #[test]
    fn a_pod_nobody_configured_has_no_configuration() {
        for text in ["{}", "", " {}\n"] {
            let mut session = Session::<Picky>::default();
            let rejections = session.pods(&mut mock::MockHost::default(), vec![configured(text)], &[]).unwrap();
            assert_eq!(rejections, [], "{text:?}");
            assert_eq!(session.policy().pods[0].config, None, "{text:?}");
        }
    }

    #[test]
    fn a_configuration_that_does_not_fit_is_reported_and_left_out() {
        for (text, field) in [
            (r#"{"level": "high"}"#, "level"),
            (r#"{"inner": {"on": 3}}"#, "inner.on"),
            (r#"{"inner": {"on": true}, "level": -1}"#, "level"),
            (r#"{"inner": {"on": true}, "level": 1.5, "inner": {}}"#, "level"),
            ("{\n  \"inner\": {\n    \"on\":\n      null}}", "inner.on"),
            (r#"{"inner": {"\\\"}{,": true, "on": "true"}}"#, "inner.on"),
            (r#"{"lewel": 1}"#, "lewel"),
            (r#"{"inner": 5}"#, "inner"),
            (r#"["level"]"#, ""),
            ("3", ""),
        ] {
            let mut session = Session::<Picky>::default();
            let rejections = session.pods(&mut mock::MockHost::default(), vec![configured(text)], &[]).unwrap();
            assert_eq!(rejections.iter().map(|rejection| rejection.field.as_str()).collect::<Vec<_>>(), [field]);
            assert_eq!(session.policy().pods[0].config, None, "{text}");
        }
    }

    #[test]
    fn a_policy_level_field_that_does_not_fit_is_named() {
        let mut session = Session::<Picky>::default();
        let error = session.configure(&mut mock::MockHost::default(), r#"{"level": 300}"#).unwrap_err();
        assert!(error.starts_with("field `level` of the policy's configuration: "), "{error}");
        session.configure(&mut mock::MockHost::default(), r#"{"level": 3}"#).unwrap();
        assert_eq!(session.policy().config.level, 3);
    }
}
