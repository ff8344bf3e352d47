//! JSON schemas of Rust types.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;

/// The JSON schema of a type. It is inlined, without references, so that it can be read from top to bottom, and without keywords that are
/// of no use to an operator.
///
/// [`Description::config`](crate::Description::config) and [`Protocol::schema_of`](crate::Protocol::schema_of) put the schema and the code
/// that generates it into the component: about 70 KB of Wasm. If that is too much, keep the schema in a file, pass it with
/// `config_schema(include_str!(…))`, and compare the file with the type in a test:
///
/// ```
/// use schemars::JsonSchema;
/// use serde::Deserialize;
/// use serde_json::Value;
///
/// #[derive(Deserialize, JsonSchema)]
/// struct Config {
///     /// How many ways batch work may use.
///     #[schemars(range(min = 1, max = 20))]
///     batch_ways: u8,
/// }
///
/// const FILE: &str = r#"{ "type": "object", "required": ["batch_ways"], "properties": { "batch_ways": {
///     "type": "integer", "format": "uint8", "minimum": 1, "maximum": 20, "description": "How many ways batch work may use." } } }"#;
///
/// let parsed = |text: &str| serde_json::from_str::<Value>(text);
/// assert_eq!(parsed(FILE)?, parsed(&qosm_sdk::schema_of::<Config>())?, "write what the type says into the file");
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn schema_of<T: JsonSchema>() -> String {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    schema.as_value().to_string()
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::{Value, json};

    use super::*;

    /// How it goes about it.
    #[derive(Default, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    enum Way {
        /// In one step.
        #[default]
        AtOnce,
        /// Bit by bit.
        Slowly,
    }

    #[derive(Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase", default, deny_unknown_fields)]
    struct Settings {
        /// How much, in percent of the limit.
        #[schemars(range(min = 1, max = 100))]
        some_percent: u32,
        way: Way,
        nodes: Vec<u32>,
    }

    impl Default for Settings {
        fn default() -> Self {
            Self { some_percent: 80, way: Way::AtOnce, nodes: Vec::new() }
        }
    }

    #[test]
    fn a_type_tells_names_ranges_words_defaults_and_meanings() {
        let schema: Value = serde_json::from_str(&schema_of::<Settings>()).unwrap();
        assert_eq!(schema["type"], "object");
        assert_eq!(schema["additionalProperties"], false);
        let percent = &schema["properties"]["somePercent"];
        for (keyword, value) in [
            ("type", json!("integer")),
            ("minimum", json!(1)),
            ("maximum", json!(100)),
            ("default", json!(80)),
            ("description", json!("How much, in percent of the limit.")),
        ] {
            assert_eq!(percent[keyword], value, "{keyword}");
        }
        let words: Vec<_> = schema["properties"]["way"]["oneOf"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|branch| branch["const"].clone())
            .collect();
        assert_eq!(words, ["atOnce", "slowly"]);
        for left_out in ["$schema", "$defs", "title"] {
            assert!(schema.get(left_out).is_none(), "{left_out}: {schema}");
        }
    }
}
