package corpus.identifiers

import rego.v1

result := {
	"uuid": uuid.parse("01234567-89ab-4def-8123-456789abcdef"),
	"bad": [x | x := uuid.parse("nope")],
	"uri": uri.parse("https://u@example.com:8443/a/b?x=1#f"),
	"uri_valid": [uri.is_valid("http://x"), uri.is_valid("http://[")],
}
