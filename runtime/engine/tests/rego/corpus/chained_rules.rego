package corpus.chained_rules

import rego.v1

a contains x if some x in [1, 2, 3]

b contains y if {
	some x in a
	y := x * 10
}

c[k] := v if {
	some k in b
	v := count({x | some x in b; x <= k})
}

result := c
