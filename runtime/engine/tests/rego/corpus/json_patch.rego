package corpus.json_patch

import rego.v1

result := {
	"patch": json.patch({"a": {"b": 1}}, [
		{"op": "add", "path": "a/c", "value": 2},
		{"op": "replace", "path": "a/b", "value": 3},
		{"op": "add", "path": "/list", "value": [1]},
		{"op": "add", "path": "/list/-", "value": 2},
		{"op": "copy", "from": "a/c", "path": "d"},
		{"op": "move", "from": "a/b", "path": "e"},
		{"op": "test", "path": "d", "value": 2},
	]),
	"fails": [x | x := json.patch({}, [{"op": "remove", "path": "nothing"}])],
}
