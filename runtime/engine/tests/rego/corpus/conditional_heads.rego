package corpus.conditional_heads

import rego.v1

result.a := 1 if input.config.threshold > 1

result.b := 2 if input.config.threshold > 1000

result.c.d := 3

result[pod.name] := pod.qos if some pod in input.pods
