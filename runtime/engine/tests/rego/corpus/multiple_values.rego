package corpus.multiple_values

import rego.v1

same := 1 if input.config.threshold == 80

same := 1 if count(input.pods) == 2

result := {"same": same}
