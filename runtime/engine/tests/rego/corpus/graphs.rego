package corpus.graphs

import rego.v1

result := {
	"reachable": graph.reachable(data.graph, ["b"]),
	"all": graph.reachable(data.graph, {"a"}),
	"paths": graph.reachable_paths({"a": ["b", "c"], "b": ["d"], "c": [], "d": []}, ["a"]),
	"walk": {p | walk(data.words, [p, "hello"])},
}
