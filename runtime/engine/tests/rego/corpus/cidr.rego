package corpus.cidr

import rego.v1

result := {
	"contains": [net.cidr_contains("10.0.0.0/8", "10.1.2.3"), net.cidr_contains("10.0.0.0/8", "11.0.0.1"), net.cidr_contains("10.0.0.0/8", "10.4.0.0/16")],
	"intersects": net.cidr_intersects("10.0.0.0/8", "10.255.0.0/16"),
	"matches": net.cidr_contains_matches("10.0.0.0/8", ["10.1.1.1", "1.1.1.1"]),
	"expand": net.cidr_expand("192.168.0.0/30"),
	"merge": net.cidr_merge(["10.0.0.0/25", "10.0.0.128/25"]),
	"valid": [net.cidr_is_valid("10.0.0.0/8"), net.cidr_is_valid("10.0.0.0/99")],
	"v6": net.cidr_contains("2001:db8::/32", "2001:db8::1"),
	"bad": [x | x := net.cidr_contains("x", "10.0.0.1")],
}
