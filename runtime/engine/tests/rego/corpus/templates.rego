package corpus.templates

import rego.v1

name := input.pods[0].name

result := {
	"split_n": strings.split_n("a-b-c", "-", 2),
	"text": $"{name} of {input.pods[0].namespace}: {[1, "a"]}",
}
