package corpus.interpolation

import rego.v1

name := input.pods[0].name

result := [$"pod {name} has {count(input.pods[0].containers)}", $"{input.config.nothing}", $"{[1, "a"]}"]
