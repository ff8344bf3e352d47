package corpus.functions

import rego.v1

double(x) := x * 2

size(x) := "big" if x > 10

else := "small"

first([x, _]) := x

name_of({"name": name}) := name

is_web(pod) if pod.labels.app == "web"

pick("a", x) := x

pick("b", x) := x * 10

result := {
	"double": double(21),
	"sizes": [size(n) | some n in [1, 11]],
	"first": first(["p", "q"]),
	"names": [name_of(pod) | some pod in input.pods],
	"web": [pod.name | some pod in input.pods; is_web(pod)],
	"not_web": [pod.name | some pod in input.pods; not is_web(pod)],
	"pick": [pick("a", 3), pick("b", 3)],
}
