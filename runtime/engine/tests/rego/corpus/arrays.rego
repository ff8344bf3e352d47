package corpus.arrays

import rego.v1

result := {
	"concat": array.concat([1], [2, 3]),
	"slice": [array.slice([1, 2, 3, 4], 1, 3), array.slice([1, 2], -5, 99), array.slice([1, 2], 2, 1)],
	"reverse": array.reverse([1, "x", null]),
	"flatten": array.flatten([1, [2, [3]], []]),
}
