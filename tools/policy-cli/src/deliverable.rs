//! Plays cases whose configurations a node can deliver: it checks them against the module's schemas, and the module never sees the others.

use qosm_cases::Script;
use qosm_model::layering::{CompiledProtocol, check_config};
use qosm_model::protocol::Description;
use qosm_sdk::testing::{Case, CaseError, Driver, PodDescription, RejectionExpectation};
use serde_json::{Map, Value};

/// The schemas of a module.
pub(crate) struct Schemas<'a> {
    description: &'a Description,
    /// `None` if pods cannot configure the policy, or if no node accepts its protocol.
    protocol: Option<CompiledProtocol>,
}

impl<'a> Schemas<'a> {
    pub(crate) fn of(description: &'a Description) -> Self {
        let protocol = description.protocol.clone().and_then(|protocol| CompiledProtocol::compile(protocol).ok());
        Self { description, protocol }
    }

    /// Plays the case.
    ///
    /// # Errors
    ///
    /// The first configuration that no node delivers, else as [`Script::play`].
    pub(crate) fn play(&self, script: &Script, driver: &mut impl Driver) -> Result<(), CaseError> {
        if let Ok(case) = &script.case {
            self.check(case)?;
        }
        script.play(driver)
    }

    /// A configuration with which the case expects an error or a rejection shows that the policy checks it, too.
    fn check(&self, case: &Case) -> Result<(), CaseError> {
        self.own("start", &case.config)?;
        self.of_pods("start: pods", &case.pods, &case.rejections)?;
        for (index, tick) in case.ticks.iter().enumerate().filter(|(_, tick)| tick.error.is_none()) {
            let place = format!("tick {}", index + 1);
            if let Some(config) = &tick.configure {
                self.own(&place, config)?;
            }
            self.of_pods(&format!("{place}: upsert"), &tick.upsert, &tick.rejections)?;
        }
        Ok(())
    }

    fn own(&self, place: &str, config: &Map<String, Value>) -> Result<(), CaseError> {
        let Description { name, protocol, config_schema, .. } = self.description;
        let has_classes = protocol.as_ref().is_some_and(|protocol| protocol.class_field.is_some());
        let none = Map::new();
        // With classes, the module gets its own configuration beside that of the classes.
        let own = if has_classes { config.get("policy").and_then(Value::as_object).unwrap_or(&none) } else { config };
        match check_config(name, config_schema.as_ref(), own).into_iter().next() {
            None => Ok(()),
            Some(problem) => {
                let field = problem.field.unwrap_or_default();
                Err(undeliverable(place, format!("{field}: {}", problem.message)))
            }
        }
    }

    fn of_pods(
        &self,
        list: &str,
        pods: &[PodDescription],
        rejections: &[RejectionExpectation],
    ) -> Result<(), CaseError> {
        let is_rejected = |pod: &PodDescription| rejections.iter().any(|rejection| rejection.pod == pod.name);
        for (index, pod) in pods.iter().enumerate().filter(|(_, pod)| !pod.config.is_empty() && !is_rejected(pod)) {
            if let Some(why) = self.refusal(&pod.config) {
                return Err(undeliverable(&format!("{list}[{index}] {}", pod.name), format!("config: {why}")));
            }
        }
        Ok(())
    }

    fn refusal(&self, config: &Map<String, Value>) -> Option<String> {
        if self.description.protocol.is_none() {
            return Some(
                "the policy has no protocol, so that no pod can be configured for it; take it away".to_owned(),
            );
        }
        self.protocol.as_ref()?.refusal(config)
    }
}

fn undeliverable(place: &str, problem: String) -> CaseError {
    CaseError::Nonsense { place: place.to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use qosm_model::protocol::Protocol;
    use serde_json::json;

    use super::*;

    fn description(has_protocol: bool) -> Description {
        let percent = json!({"type": "object", "additionalProperties": false, "properties": {
            "percent": {"type": "integer", "minimum": 1, "maximum": 100}}});
        let protocol = Protocol {
            annotation_keys: vec!["example.com/p".to_owned()],
            config_map_key: None,
            class_field: None,
            namespace_list_key: None,
            defaults: Map::new(),
            presets: Vec::new(),
            schema: percent.clone(),
            node_only_fields: Vec::new(),
        };
        Description {
            name: "p".to_owned(),
            version: "0.1.0".to_owned(),
            summary: String::new(),
            protocol: has_protocol.then_some(protocol),
            config_schema: Some(percent),
            interval_millis: 0,
            triggers: Vec::new(),
        }
    }

    fn check(description: &Description, case: &str) -> String {
        let case = Case::parse(case).unwrap();
        Schemas::of(description).check(&case).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn a_configuration_that_no_node_delivers_is_named_with_its_place() {
        let pods = "pods: [{name: default/db}, {name: default/web, config: {percent: 800}}]";
        let wrong = format!("{{about: a pod's, {pods}, ticks: []}}");
        let rejected =
            format!("{{about: a pod's, {pods}, rejections: [{{pod: default/web, field: percent}}], ticks: []}}");
        for (case, expected) in [
            ("{about: it fits, config: {percent: 1}, pods: [{name: a/b, config: {percent: 100}}], ticks: [{}]}", ""),
            (
                "{about: its own, config: {percnt: 1}, ticks: []}",
                "start: config: percnt: there is no such field; write `percent`",
            ),
            ("{about: its own, ticks: [{}, {configure: {percent: 0}}]}", "tick 2: config: percent: 0 is below 1"),
            ("{about: its own, ticks: [{configure: {percent: 0}, error: percent}]}", ""),
            (wrong.as_str(), "start: pods[1] default/web: config: percent: 800 is above 100"),
            (rejected.as_str(), ""),
            (
                "{about: a pod's, ticks: [{upsert: [{name: a/b, config: {share: 1}}]}]}",
                "tick 1: upsert[0] a/b: config: `share` is not in the schema",
            ),
        ] {
            let found = check(&description(true), case);
            assert!(found.starts_with(expected) && found.is_empty() == expected.is_empty(), "{case}: {found}");
        }
        let found = check(&description(false), &wrong);
        assert!(found.starts_with("start: pods[1] default/web: config: the policy has no protocol"), "{found}");
    }
}
