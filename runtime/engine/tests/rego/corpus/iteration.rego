package corpus.iteration

import rego.v1

pairs contains [i, v] if some i, v in ["a", "b", "c"]

keys contains k if some k, _ in data.limits

old_style contains x if input.pods[_].containers[x].kind == "sidecar"

walked contains path if {
	walk(data.limits, [path, value])
	is_number(value)
}

some_vars contains [i, j] if {
	some i, j
	data.graph[i][j] == "d"
}

result := {"pairs": pairs, "keys": keys, "old": old_style, "walked": walked, "some": some_vars}
