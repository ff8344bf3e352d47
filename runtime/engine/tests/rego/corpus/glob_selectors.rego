package corpus.glob_selectors

import rego.v1

selected contains pod.name if {
	some pod in input.pods
	some pattern in ["w*", "db-?"]
	glob.match(pattern, [], pod.name)
}

result := selected
