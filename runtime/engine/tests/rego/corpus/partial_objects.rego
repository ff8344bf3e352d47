package corpus.partial_objects

import rego.v1

by_name[pod.name] := {c.name: c.state | some c in pod.containers} if some pod in input.pods

by_qos[pod.qos] contains pod.name if some pod in input.pods

nested.a[x].b contains y if {
	some x, y in ["p", "q"]
}

result := {"by_name": by_name, "by_qos": by_qos, "nested": nested}
