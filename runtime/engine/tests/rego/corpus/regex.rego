package corpus.regex

import rego.v1

result := {
	"match": [regex.match(`^w[a-z]+$`, "web"), regex.match(`\d`, "none"), regex.match(`(?i)WEB`, "web")],
	"valid": [regex.is_valid("["), regex.is_valid("[a]")],
	"split": regex.split(`\s*,\s*`, "a , b,c"),
	"find": regex.find_n(`a.`, "abacad", 2),
	"find_all": regex.find_n(`a.`, "abacad", -1),
	"submatch": regex.find_all_string_submatch_n(`(a)(.)`, "abac", -1),
	"replace": regex.replace("foo bar", `(\w+) (\w+)`, "$2 $1"),
	"template": regex.template_match("urn:{[a-z]+}:x", "urn:abc:x", "{", "}"),
	"globs": [regex.globs_match("a.a.[0-9]+z", "b.b.[0-9]*y"), regex.globs_match("[a-z]+", "[a-z]*")],
	"bad": [x | x := regex.match("[", "a")],
}
