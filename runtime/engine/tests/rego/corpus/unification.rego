package corpus.unification

import rego.v1

result := {
	"array": [[x, y] | [x, 2, y] = [1, 2, 3]],
	"object": [v | {"a": v, "b": 1} = {"a": 9, "b": 1}],
	"fails": [x | [x, 2] = [1, 3]],
	"assign": y,
	"deep": [z | {"p": [{"q": z}]} = {"p": [{"q": "r"}]}],
}

y := x + 1 if x := 1
