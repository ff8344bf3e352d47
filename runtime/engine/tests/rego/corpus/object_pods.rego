package corpus.object_pods

import rego.v1

result := [{"id": pod.id, "n": count(pod.containers), "ids": [c.id | some c in pod.containers]} |
	some pod in input.pods
	pod.active
]
