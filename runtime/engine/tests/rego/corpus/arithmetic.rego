package corpus.arithmetic

import rego.v1

result := {
	"basic": [1 + 2, 5 - 7, 3 * 4, 10 / 4, 10 % 3, -7 % 3],
	"exact": [0.5 + 0.25, 1e3 + 1, 123456789 * 1000, 9007199254740993 + 1],
	"round": [round(2.5), round(-2.5), ceil(2.1), floor(-2.1), abs(-3.5)],
	"range": numbers.range(3, -1),
	"step": numbers.range_step(0, 10, 4),
	"precedence": [1 + (2 * 3), (1 + 2) * 3, (10 - 3) - 2],
	"big": 12345678901234567890 + 1,
	"share": round((1 / 3) * 1000000),
}
