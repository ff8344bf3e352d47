package corpus.nested_with_builtin_errors

import rego.v1

parsed(text) := units.parse_bytes(text)

safe(text) := size if {
	size := parsed(text)
} else := -1

result := [safe(text) | some text in ["1Ki", "oops", "2MB"]]
