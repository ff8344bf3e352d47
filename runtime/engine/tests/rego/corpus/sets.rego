package corpus.sets

import rego.v1

result := {
	"ops": [{1, 2} & {2, 3}, ({1, 2} | {2, 3}), {1, 2} - {2}],
	"union": union({{1}, {2, 3}, set()}),
	"intersection": intersection({{1, 2}, {2, 3}}),
	"empty": [set(), count(set()), {1} == {1}],
	"of_objects": {{"a": 1}, {"a": 2}},
	"nested": {{1, 2}, {3}},
}
