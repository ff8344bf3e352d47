package corpus.settings_like

import rego.v1

result contains {"container": c.id, "knob": "memory.high", "value": value, "reason": reason} if {
	some pod in input.pods
	some c in pod.containers
	value := floor((c.memoryLimitBytes * input.config.threshold) / 100)
	reason := sprintf("%d %% of %v for %s/%s", [input.config.threshold, c.memoryLimitBytes, pod.namespace, pod.name])
}
