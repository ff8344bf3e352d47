package corpus.string_errors

import rego.v1

result := {
	"lower": [x | x := lower(input.pods)],
	"substring": [x | x := substring("abc", -1, 2)],
	"concat": [x | x := concat(",", input.pods)],
	"format": [x | x := format_int(input.config.names, 10)],
	"split": [x | x := split(input.config.threshold, ",")],
}
