package corpus.documents

import rego.v1

result := {
	"tenants": {t.name: object.get(data.limits, [t.tier, "cpu"], data.limits.default) | some t in data.tenants},
	"empty": data.empty,
	"words": count(data.words),
}
