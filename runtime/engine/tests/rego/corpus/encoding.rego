package corpus.encoding

import rego.v1

doc := {"a": [1, "é", null, {"c": true}]}

result := {
	"base64": [base64.encode("hello ü"), base64.decode("aGVsbG8="), base64.is_valid("aGVsbG8="), base64.is_valid("%")],
	"url": [base64url.encode("a?b>"), base64url.encode_no_pad("a"), base64url.decode("YT9iPg==")],
	"hex": [hex.encode("abc"), hex.decode("616263")],
	"json": [json.marshal(doc), json.unmarshal("{\"x\": [1.50, 2e3]}"), json.is_valid("{"), json.is_valid("[]")],
	"pretty": json.marshal_with_options({"a": 1}, {"pretty": true, "indent": "  "}),
	"yaml": [yaml.marshal({"a": [1, "x"], "b": "yes"}), yaml.unmarshal("a: 1\nb: [x, 'y']\nc:\n  d: true\n"), yaml.is_valid("a: [")],
	"urlquery": [urlquery.encode("a b&c"), urlquery.decode("a%20b%26c"), urlquery.decode_object("a=1&a=2&b=x"), urlquery.encode_object({"a": "1", "b": ["x", "y"]})],
	"bad": [x | x := base64.decode("***")],
}
