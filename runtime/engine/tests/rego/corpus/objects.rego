package corpus.objects

import rego.v1

a := {"x": 1, "y": {"z": [1, 2], "w": null}}

result := {
	"get": [object.get(a, "x", 9), object.get(a, "q", 9), object.get(a, ["y", "z", 1], 9), object.get(a, ["y", "q"], 9)],
	"keys": object.keys(a),
	"remove": object.remove(a, ["x"]),
	"filter": object.filter(a, ["y"]),
	"union": object.union(a, {"y": {"z": 5}, "n": 1}),
	"union_n": object.union_n([{"a": 1}, {"b": {"c": 1}}, {"b": {"d": 2}}]),
	"subset": [object.subset(a, {"x": 1}), object.subset(a, {"x": 2}), object.subset({1, 2}, {1}), object.subset([1, 2, 3], [2, 3])],
	"json_filter": json.filter(a, ["y/w", "x"]),
	"json_remove": json.remove(a, ["y/z/0"]),
}
