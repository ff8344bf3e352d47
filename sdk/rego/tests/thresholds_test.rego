package qosm.lib.thresholds_test

import data.qosm.lib.thresholds

test_what_came_high_stays_high_until_it_is_low if {
	not thresholds.high(85, 90, 80, false)
	thresholds.high(90, 90, 80, false)
	thresholds.high(85, 90, 80, true)
	thresholds.high(80, 90, 80, true)
	not thresholds.high(79, 90, 80, true)
}
