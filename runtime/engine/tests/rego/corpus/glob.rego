package corpus.glob

import rego.v1

result := {
	"match": [
		glob.match("*.example.com", ["."], "api.example.com"),
		glob.match("*.example.com", ["."], "a.b.example.com"),
		glob.match("**.example.com", ["."], "a.b.example.com"),
		glob.match("{web,db}-*", [], "web-1"),
		glob.match("[a-c]?", [], "bz"),
		glob.match("*", null, "a.b"),
		glob.match("*", [], "a.b"),
	],
	"quote": glob.quote_meta("*.x{a}"),
}
