//! The functions that the host refuses, and those that the compiler removes.

use crate::table::{Entry, Provider};

pub(crate) const ENTRIES: &[Entry] = &[
    compiler("assign"),
    compiler("eq"),
    compiler("print"),
    compiler("rego.metadata.chain"),
    compiler("rego.metadata.rule"),
    refused(
        "internal.test_case",
        "it is a part of `opa test`",
        "keep test cases in a file that is not built into the bundle",
    ),
    refused(
        "http.send",
        "it leaves the node, and an evaluation must not wait",
        "use what `input` has, or `data` from the policy's configuration",
    ),
    refused(
        "net.lookup_ip_addr",
        "it leaves the node, and an evaluation must not wait",
        "list the addresses in the policy's configuration",
    ),
    refused(
        "rand.intn",
        "a replay would give different settings",
        "derive a number from the input, for example from the pod's `uid`",
    ),
    refused(
        "uuid.rfc4122",
        "a replay would give different settings",
        "use an identifier in `input`, for example the pod's `uid`",
    ),
    refused("providers.aws.sign_req", "a policy sends no requests", "remove the call; a policy has no network"),
    refused("rego.parse_module", "a node does not parse policies", "run `opa parse` where the policy is built"),
    refused(
        "strings.render_template",
        "it takes Go's text/template, a language with loops",
        "a template string, `$\"{pod.name}: {n}\"`, or `sprintf` and `concat`",
    ),
    graphql("graphql.is_valid"),
    graphql("graphql.parse"),
    graphql("graphql.parse_and_verify"),
    graphql("graphql.parse_query"),
    graphql("graphql.parse_schema"),
    graphql("graphql.schema_is_valid"),
    keys("crypto.parse_private_keys"),
    keys("crypto.x509.parse_and_verify_certificates"),
    keys("crypto.x509.parse_and_verify_certificates_with_options"),
    keys("crypto.x509.parse_certificate_request"),
    keys("crypto.x509.parse_certificates"),
    keys("crypto.x509.parse_keypair"),
    keys("crypto.x509.parse_rsa_private_key"),
    tokens("io.jwt.decode"),
    tokens("io.jwt.decode_verify"),
    tokens("io.jwt.encode_sign"),
    tokens("io.jwt.encode_sign_raw"),
    tokens("io.jwt.verify_eddsa"),
    tokens("io.jwt.verify_es256"),
    tokens("io.jwt.verify_es384"),
    tokens("io.jwt.verify_es512"),
    tokens("io.jwt.verify_hs256"),
    tokens("io.jwt.verify_hs384"),
    tokens("io.jwt.verify_hs512"),
    tokens("io.jwt.verify_ps256"),
    tokens("io.jwt.verify_ps384"),
    tokens("io.jwt.verify_ps512"),
    tokens("io.jwt.verify_rs256"),
    tokens("io.jwt.verify_rs384"),
    tokens("io.jwt.verify_rs512"),
];

const fn compiler(name: &'static str) -> Entry {
    Entry { name, provider: Provider::Compiler }
}

const fn refused(name: &'static str, why: &'static str, instead: &'static str) -> Entry {
    Entry { name, provider: Provider::Refused { why, instead } }
}

const fn graphql(name: &'static str) -> Entry {
    refused(
        name,
        "a policy receives no GraphQL queries",
        "parse the query where the configuration is made, and pass JSON",
    )
}

const fn keys(name: &'static str) -> Entry {
    refused(
        name,
        "a policy has no keys and no certificates",
        "check them where the configuration is made; compare digests with `crypto.sha256`",
    )
}

const fn tokens(name: &'static str) -> Entry {
    refused(name, "a policy receives no tokens", "check the token where the configuration is made, and pass its claims")
}
