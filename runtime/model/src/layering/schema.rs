//! What a JSON schema says about one field: names, kinds and help texts. The validator checks everything else.

use serde_json::Value;

use crate::foreign;

pub(super) use crate::spelling::nearest;

/// Maximum depth of references and alternatives, and maximum number of parts: a schema beyond them is a mistake or malicious.
const MAX_DEPTH: usize = 16;
const MAX_PARTS: usize = 64;

/// A schema together with its parts: the target of `$ref`, and the branches of `allOf`, `anyOf` and `oneOf`.
#[derive(Clone, Debug)]
pub(super) struct Shape<'s> {
    root: &'s Value,
    parts: Vec<&'s Value>,
}

impl<'s> Shape<'s> {
    /// The shape of a whole schema.
    pub(super) fn of(schema: &'s Value) -> Self {
        let mut shape = Self { root: schema, parts: Vec::new() };
        shape.add(schema, MAX_DEPTH);
        shape
    }

    /// The declared field names, without duplicates.
    pub(super) fn names(&self) -> Vec<&'s str> {
        let mut names: Vec<&str> =
            self.objects("properties").flat_map(|properties| properties.keys().map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The declared name that equals `name`, or else that differs only in letter case.
    pub(super) fn canonical(&self, name: &str) -> Option<&'s str> {
        let names = self.names();
        names
            .iter()
            .find(|known| **known == name)
            .or_else(|| names.iter().find(|known| known.eq_ignore_ascii_case(name)))
            .copied()
    }

    /// Whether fields that are not declared are allowed.
    pub(super) fn is_open(&self) -> bool {
        let declares = self.objects("properties").next().is_some();
        let invites = self.parts.iter().any(|part| {
            part.get("additionalProperties").is_some_and(|more| more != &Value::Bool(false))
                || part.get("patternProperties").is_some()
        });
        !declares || invites
    }

    /// Whether this is an object with declared fields.
    pub(super) fn has_fields(&self) -> bool {
        self.objects("properties").next().is_some()
    }

    /// The shape of a field; `None` if the schema does not define it.
    pub(super) fn field(&self, name: &str) -> Option<Self> {
        let declared = self.objects("properties").filter_map(|properties| properties.get(name));
        let mut shape = Self { root: self.root, parts: Vec::new() };
        for schema in declared {
            shape.add(schema, MAX_DEPTH);
        }
        if shape.parts.is_empty() {
            for more in
                self.parts.iter().filter_map(|part| part.get("additionalProperties")).filter(|more| more.is_object())
            {
                shape.add(more, MAX_DEPTH);
            }
        }
        (!shape.parts.is_empty()).then_some(shape)
    }

    /// The shape of a list's items.
    pub(super) fn items(&self) -> Option<Self> {
        let mut shape = Self { root: self.root, parts: Vec::new() };
        for items in self.parts.iter().filter_map(|part| part.get("items")).filter(|items| items.is_object()) {
            shape.add(items, MAX_DEPTH);
        }
        (!shape.parts.is_empty()).then_some(shape)
    }

    /// Whether numbers must be whole. JSON schema accepts 95.0 as an integer; the protocol does not.
    pub(super) fn is_whole(&self) -> bool {
        self.has_type("integer") && !self.has_type("number")
    }

    /// The words that a field may hold; `None` if it may hold any. The schema lists them in an `enum`, or as a `const` in
    /// one branch each, which derived schemas of documented enums do.
    pub(super) fn words(&self) -> Option<Vec<&'s str>> {
        let listed = self.parts.iter().find_map(|part| part.get("enum")?.as_array());
        let values: Vec<&Value> = match listed {
            Some(values) => values.iter().collect(),
            None => self.parts.iter().filter_map(|part| part.get("const")).collect(),
        };
        let words: Vec<&str> = values.into_iter().filter_map(Value::as_str).filter(|word| !word.is_empty()).collect();
        (!words.is_empty()).then_some(words)
    }

    /// What to write, e.g. `a whole number from 0 to 100`.
    pub(super) fn expectation(&self) -> String {
        if let Some(words) = self.words() {
            return one_of(&words);
        }
        if let Some(value) = self.parts.iter().find_map(|part| part.get("const")) {
            return show(value);
        }
        if self.has_type("integer") || self.has_type("number") {
            return format!("{}{}", self.kind(), self.range());
        }
        self.kind().to_owned()
    }

    /// The kind of value, e.g. `a whole number`.
    pub(super) fn kind(&self) -> &'static str {
        let kinds = [
            ("number", "a number"),
            ("integer", "a whole number"),
            ("boolean", "true or false"),
            ("string", "a string"),
            ("array", "a list"),
            ("object", "a JSON object"),
        ];
        kinds.into_iter().find(|(name, _)| self.has_type(name)).map_or("what the schema asks for", |(_, kind)| kind)
    }

    fn range(&self) -> String {
        let bound = |keyword: &str, none: i64| {
            let value = self.parts.iter().find_map(|part| part.get(keyword)).filter(|value| value.is_number())?;
            (value.as_i64() != Some(none)).then_some(value)
        };
        let least = bound("minimum", i64::MIN);
        let most = bound("maximum", i64::MAX);
        match (least, most, bound("exclusiveMinimum", i64::MIN), bound("exclusiveMaximum", i64::MAX)) {
            (Some(least), Some(most), ..) => format!(" from {least} to {most}"),
            (Some(least), None, _, None) => format!(", at least {least}"),
            (Some(least), None, _, Some(below)) => format!(", at least {least} and below {below}"),
            (None, Some(most), None, _) => format!(", at most {most}"),
            (None, Some(most), Some(above), _) => format!(" above {above}, at most {most}"),
            (None, None, Some(above), None) => format!(" above {above}"),
            (None, None, None, Some(below)) => format!(" below {below}"),
            (None, None, Some(above), Some(below)) => format!(" above {above} and below {below}"),
            (None, None, None, None) => String::new(),
        }
    }

    fn has_type(&self, name: &str) -> bool {
        self.parts.iter().filter_map(|part| part.get("type")).any(|kind| match kind {
            Value::String(one) => one == name,
            Value::Array(several) => several.iter().any(|one| one == name),
            _ => false,
        })
    }

    fn objects(&self, keyword: &'static str) -> impl Iterator<Item = &'s serde_json::Map<String, Value>> {
        self.parts.iter().filter_map(move |part| part.get(keyword)?.as_object())
    }

    fn add(&mut self, schema: &'s Value, depth: usize) {
        if depth == 0 || self.parts.len() >= MAX_PARTS {
            return;
        }
        self.parts.push(schema);
        // Only references within the document are followed; the validator refuses to compile others.
        let pointer = schema.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        if let Some(target) = pointer.and_then(|pointer| self.root.pointer(pointer)) {
            self.add(target, depth - 1);
        }
        for keyword in ["allOf", "anyOf", "oneOf"] {
            for branch in schema.get(keyword).and_then(Value::as_array).into_iter().flatten() {
                self.add(branch, depth - 1);
            }
        }
    }
}

/// A list of words to choose from.
pub(super) fn one_of(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.as_slice() {
        [one] => one.clone(),
        _ => format!("one of {}", quoted.join(", ")),
    }
}

/// A value for a message: numbers and booleans plain, everything else as quoted JSON, cut to a maximum length.
pub(super) fn show(value: &Value) -> String {
    match value {
        Value::Number(_) | Value::Bool(_) => value.to_string(),
        _ => format!("`{}`", clip(&value.to_string())),
    }
}

/// Third-party text in a message: short, and without terminal control characters.
pub(super) fn clip(text: &str) -> String {
    foreign::shown(text, 80)
}

/// A sentence with third-party text in it.
pub(super) fn shown(text: &str) -> String {
    foreign::shown(text, 400)
}
