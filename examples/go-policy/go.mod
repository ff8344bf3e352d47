module memory-high

go 1.25

require github.com/qosm/qosm/sdk/go v0.0.0

require go.bytecodealliance.org/pkg v0.2.1 // indirect

// In another repository remove this line; `go get github.com/qosm/qosm/sdk/go` writes the one above.
replace github.com/qosm/qosm/sdk/go => ../../sdk/go
