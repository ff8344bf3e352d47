package corpus.set_of_sets_of_text

import rego.v1

result := {s | some x in ["a b", "b a", "c"]; s := {w | some w in split(x, " ")}}
