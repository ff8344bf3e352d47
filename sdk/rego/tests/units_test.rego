package qosm.lib.units_test

import data.qosm.lib.units

test_division_goes_downwards_and_stays_whole if {
	units.divide(7, 2) == 3
	units.divide(6, 2) == 3
	units.divide(0, 5) == 0
	json.marshal(units.divide(6, 2)) == "3"
}

test_a_division_by_nothing_has_no_answer if {
	not units.divide(1, 0)
	not units.percentage(1, 0)
}

test_percentages_are_exact_beyond_what_a_double_holds if {
	units.percent_of(80, 1073741824) == 858993459
	units.percent_of(100, 9007199254740993) == 9007199254740993
	units.percent_of(33, 4503599627370497) == 1486187877032264
	units.percentage(2, 3) == 66
}

test_steps_and_bounds if {
	units.floor_to(8191, 4096) == 4096
	units.clamp(5, 1, 3) == 3
	units.clamp(0, 1, 3) == 1
	units.clamp(2, 1, 3) == 2
}

test_quantities_are_read_as_kubernetes_writes_them if {
	every quantity, bytes in {"512Mi": 536870912, "1.5Gi": 1610612736, "1G": 1000000000, "1000": 1000, "10k": 10000} {
		units.bytes(quantity) == bytes
	}
	units.bytes(4096) == 4096
	every quantity, milli in {"250m": 250, "2": 2000, "0.5": 500} {
		units.milli_cpu(quantity) == milli
	}
	units.milli_cpu(1.5) == 1500
}

test_each_thousandth_of_a_cpu_is_exact if {
	every milli in numbers.range(1, 4000) {
		units.milli_cpu(milli / 1000) == milli
		units.milli_cpu(sprintf("%dm", [milli])) == milli
	}
	units.milli_cpu("0.0015") == 1
	units.milli_cpu(0) == 0
}

test_what_is_no_quantity_has_no_bytes if {
	not units.bytes("a lot")
	not units.bytes("1000m")
	not units.bytes(null)
}
