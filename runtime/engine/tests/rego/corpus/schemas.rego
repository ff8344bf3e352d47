package corpus.schemas

import rego.v1

schema := {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

result := {
	"match": [x | [x, _] := json.match_schema({"n": 1}, schema)],
	"differs": [x | [x, _] := json.match_schema({"n": "x"}, schema)],
	"verify": [x | [x, _] := json.verify_schema(schema)],
}
