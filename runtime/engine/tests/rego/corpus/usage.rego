package corpus.usage

import rego.v1

usage[container.id] := share if {
	some pod in input.pods
	some container in pod.containers
	sample := input.cpu[container.id]
	share := round((sample.usageUsec * 100) / input.tick.windowUsec)
}

result := usage
