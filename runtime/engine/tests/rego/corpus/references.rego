package corpus.references

import rego.v1

field := "name"

result := {
	"dynamic": [pod[field] | some pod in input.pods],
	"index": input.pods[0].containers[1].name,
	"brackets": input.pods[0].labels["koordinator.sh/qosClass"],
	"data": data.limits.gold.memory,
	"chain": [data.limits[t.tier].cpu | some t in data.tenants],
	"number_key": {1: "one", 2: "two"}[2],
	"set_ref": {"a", "b"}.a,
	"composite": {[1, 2]: "x"}[[1, 2]],
}
