package corpus.trace_and_print

import rego.v1

result := "fine" if {
	print("hello", input.pods[0].name)
	trace("note")
}
