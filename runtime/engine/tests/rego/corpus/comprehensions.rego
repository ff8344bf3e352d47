package corpus.comprehensions

import rego.v1

result := {
	"array": [y | some x in [3, 1, 2]; y := x * x],
	"set": {y | some x in [3, 1, 2]; y := x % 2},
	"object": {format_int(x, 10): x | some x in [3, 1, 2]},
	"nested": [[y | some y in numbers.range(1, x)] | some x in [2, 3]],
	"empty": {x | some x in data.empty; x > 1},
}
