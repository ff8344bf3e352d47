package corpus.errors_go_on

import rego.v1

values contains to_number(text) if some text in ["1", "x", "2"]

times contains t if {
	some text in ["2023-01-01T00:00:00Z", "never"]
	t := time.parse_rfc3339_ns(text)
}

fallback := x if {
	x := semver.compare("bad", "1.0.0")
} else := "fell back"

result := {"values": values, "times": times, "fallback": fallback}
