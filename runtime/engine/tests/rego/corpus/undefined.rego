package corpus.undefined

import rego.v1

missing := input.nothing.at.all

a contains "x" if missing

b := "fallback" if not missing

result := {"a": a, "b": b, "or": object.get(input, ["node", "nothing"], "none"), "list": [x | x := input.pods[_].priority]}
