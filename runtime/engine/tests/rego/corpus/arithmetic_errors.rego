package corpus.arithmetic_errors

import rego.v1

by_zero := 1 / 0

modulo := 5 % 0

fraction := 1.5 % 1

result := {"zero": [1 | by_zero], "modulo": [1 | modulo], "fraction": [1 | fraction], "more": 7}
