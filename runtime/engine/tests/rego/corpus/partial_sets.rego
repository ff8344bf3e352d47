package corpus.partial_sets

import rego.v1

busy contains pod.name if {
	some pod in input.pods
	some container in pod.containers
	input.cpu[container.id].usageUsec >= 10000
}

result := {"busy": busy, "count": count(busy), "has": "web" in busy, "minus": busy - {"web"}, "and": busy & {"web", "x"}, "or": (busy | {"x"})}
