package qosm.lib.report_test

import data.qosm.lib.report
import data.qosm.lib.testing

web := testing.pod("default/web", [], {})

test_events_are_on_pods if {
	report.warning(web, "Near", "near") == {"event": "Near", "pod": "default/web", "type": "Warning", "message": "near"}
	report.event(web, "Far", "far") == {"event": "Far", "pod": "default/web", "type": "Normal", "message": "far"}
}

test_lines_have_levels if {
	report.log("so") == {"log": "so", "level": "info"}
	report.complain("so") == {"log": "so", "level": "warn"}
}

test_a_rejection_names_the_field if {
	report.reject(web, "percent", "give 1 to 100") == {
		"reject": "default/web",
		"field": "percent",
		"message": "give 1 to 100",
	}
}

test_what_is_remembered_is_an_object if {
	report.remember({"near": ["a"]}) == {"state": {"near": ["a"]}}
}
