package corpus.strings

import rego.v1

s := "Hello, wörld"

result := {
	"case": [lower(s), upper(s)],
	"contains": [contains(s, "wör"), startswith(s, "Hell"), endswith(s, "x")],
	"index": [indexof(s, "o"), indexof(s, "r"), indexof(s, "q"), indexof_n("abab", "b")],
	"sub": [substring(s, 7, 2), substring(s, 7, -1), substring(s, 0, 99)],
	"trim": [trim("..a..", "."), trim_left("..a.", "."), trim_right(".a..", "."), trim_space(" \t a\n"), trim_prefix("abc", "a"), trim_suffix("abc", "c")],
	"split": [split("a,b,,c", ","), split("abc", ""), split("", ",")],
	"join": concat("-", ["a", "b"]),
	"replace": [replace("aXbX", "X", "-"), strings.replace_n({"a": "1", "b": "2"}, "abc")],
	"reverse": strings.reverse("aé"),
	"count": strings.count("banana", "an"),
	"any": [strings.any_prefix_match(["ab", "cd"], ["c"]), strings.any_suffix_match("ab", ["x", "b"])],
	"format": [format_int(255, 16), format_int(-10, 2), format_int(8.9, 8)],
}
