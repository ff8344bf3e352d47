package corpus.numbers_kept

import rego.v1

result := {
	"big": input.config.big,
	"product": input.config.big * 2,
	"share": input.pods[0].config.share,
	"same": 1.50 == 1.5,
	"set": {1},
	"float": 0.1 + 0.2,
	"negative_zero": 0 * -1,
	"exponent": 5e-3,
}
