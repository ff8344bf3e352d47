package corpus.membership

import rego.v1

result := {
	"array": 2 in [1, 2],
	"set": "x" in {"x"},
	"object": 1 in {"a": 1},
	"key": "a",
	"pair": [true | "a", 1 in {"a": 1}],
	"index": [true | 0, "p" in ["p"]],
	"absent": [true | 3 in [1, 2]],
	"not": [true | not 3 in [1, 2]],
}
