package corpus.comparison

import rego.v1

result := {
	"numbers": [1 < 2, 2 <= 2, 3 > 4, 1 == 1.0, 1 != 2],
	"types": [null < false, false < true, true < 0, 5 < "a", "a" < ["a"], [9] < {"a": 1}, {"a": 1} < {"a"}],
	"strings": ["a" < "b", "B" < "a", "é" > "z", "" < "a"],
	"arrays": [[1, 2] < [1, 3], [1] < [1, 0], [] < [0]],
	"sort": sort(["b", 3, null, true, [1], {"x": 1}, {2}, "a", 1.5]),
	"quota": "max" > 99999999999,
}
