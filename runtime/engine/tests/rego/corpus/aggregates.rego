package corpus.aggregates

import rego.v1

result := {
	"count": [count([1, 2]), count({}), count("héllo"), count({1})],
	"sum": [sum([1, 2.5]), sum(set()), product([2, 3, 4]), product([])],
	"max": [max([3, 9, 2]), min({5, 1}), max(["a", "b"])],
	"none": [x | x := max([])],
	"sort": sort({3, 1, 2}),
}
