package corpus.complete_rules

import rego.v1

default answer := "no"

answer := "yes" if input.config.threshold > 50

else := "maybe"

level := "high" if {
	input.config.threshold > 90
} else := "middle" if {
	input.config.threshold > 70
} else := "low"

result := {"answer": answer, "level": level}
