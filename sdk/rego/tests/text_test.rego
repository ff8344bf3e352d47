package qosm.lib.text_test

import data.qosm.lib.text

test_a_line_takes_numbers_as_they_are if {
	text.line(["at ", 6 / 2, " of ", 2.5, ", ", true, "; ", ["a", 1]]) == `at 3 of 2.5, true; ["a",1]`
	text.line([]) == ""
}

test_bytes_are_printed_for_people if {
	every number, printed in {
		"0": "0 B",
		"1023": "1023 B",
		"1024": "1 KiB",
		"1536": "1.5 KiB",
		"1048575": "1023.9 KiB",
		"536870912": "512 MiB",
		"1073741824": "1 GiB",
		"1610612736": "1.5 GiB",
		"1181116007": "1.1 GiB",
	} {
		text.bytes(to_number(number)) == printed
	}
}

test_cpus_are_printed_for_people if {
	text.cpus(250) == "0.25 CPUs"
	text.cpus(2000) == "2 CPUs"
	text.cpus(1005) == "1.005 CPUs"
	text.cpus(1) == "0.001 CPUs"
}

test_a_pod_has_a_name if {
	text.name({"namespace": "default", "name": "web"}) == "default/web"
}
