package corpus.unicode

import rego.v1

result := {
	"text": data.words.de,
	"count": count(data.words.de),
	"upper": upper(data.words.de),
	"escapes": "tab\tquote\" \\ é \u00e9",
	"raw": `a\tb`,
	"name": input.pods[1].containers[0].name,
	"keys": {"ключ": 1},
}
