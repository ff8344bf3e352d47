package corpus.sorting

import rego.v1

by_usage := [pair[1] | some pair in sort([[0 - row.usageBytes, id] | some id, row in input.memory])]

result := {"order": by_usage, "first": by_usage[0]}
