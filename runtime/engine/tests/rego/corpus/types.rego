package corpus.types

import rego.v1

result := {
	"names": [type_name(x) | some x in [null, true, 1, "a", [1], {"a": 1}, {1}]],
	"is": [is_null(null), is_boolean(false), is_number(1.5), is_string("a"), is_array([]), is_object({}), is_set(set())],
	"not": [x | some x in [1, "a"]; not is_string(x)],
	"to_number": [to_number("1.50"), to_number(true), to_number(null), to_number("-3")],
	"bad": [x | x := to_number("abc")],
}
