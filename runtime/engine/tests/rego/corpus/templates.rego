package corpus.templates

import rego.v1

result := {
	"render": strings.render_template("{{.name}} has {{.n}}", {"name": "web", "n": 3}),
	"range": strings.render_template("{{range .l}}<{{.}}>{{end}}", {"l": ["a", "b"]}),
	"split_n": strings.split_n("a-b-c", "-", 2),
}
