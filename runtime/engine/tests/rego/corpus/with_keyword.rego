package corpus.with_keyword

import rego.v1

load := input.load

allowed if data.users[input.user]

result := {
	"input": [x | x := load with input as {"load": 7}],
	"path": [x | x := load with input.load as 8],
	"data": [true | allowed with input as {"user": "eve"} with data.users as {"eve": true}],
	"not": [true | not allowed with input as {"user": "eve"} with data.users as {"bob": true}],
}
