package corpus.quotas

import rego.v1

unlimited contains id if {
	some id, row in input.bandwidth.containers
	row.quotaUsec == "max"
}

limited contains id if {
	some id, row in input.bandwidth.containers
	row.quotaUsec < 1000000000
}

result := {"unlimited": unlimited, "limited": limited}
