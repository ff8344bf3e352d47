// Package qosm makes a qosm policy of a Go type, with the plain Go toolchain.
//
// A policy implements [Policy], hands itself to [Export] in an init function, and has an empty main:
//
//	func init() { qosm.Export(&policy{}) }
//	func main() {}
//
// What it reads and sets are the packages under bindings, one for each interface of the contract, e.g.
// bindings/qosm_policy_memory_protection. An import is a permission, and a component imports what its code calls.
//
// There is no operating system behind a policy: no files, no environment, no time and no chance. What is written to standard
// output or error is dropped; [Log] is how a policy speaks.
package qosm

import (
	"runtime/debug"

	exports "github.com/qosm/qosm/sdk/go/bindings/export_qosm_policy_lifecycle"
	"github.com/qosm/qosm/sdk/go/bindings/qosm_policy_lifecycle"
	"github.com/qosm/qosm/sdk/go/bindings/qosm_policy_log"
	"github.com/qosm/qosm/sdk/go/bindings/qosm_policy_types"
	_ "github.com/qosm/qosm/sdk/go/bindings/wit_exports"
	witTypes "go.bytecodealliance.org/pkg/wit/types"
)

// The contract's types under short names; their documentation is the contract's.
type (
	Policy      = exports.Policy
	Description = qosm_policy_lifecycle.Description
	Protocol    = qosm_policy_lifecycle.Protocol
	Preset      = qosm_policy_lifecycle.Preset
	Rejection   = qosm_policy_lifecycle.Rejection
	Pod         = qosm_policy_types.Pod
	PodID       = qosm_policy_types.PodId
	Container   = qosm_policy_types.Container
	ContainerID = qosm_policy_types.ContainerId
	Target      = qosm_policy_types.Target
	Tick        = qosm_policy_types.Tick
)

// heap is where the garbage collector begins to work harder: below the 32 MiB that an instance may have unless its operator says
// otherwise, with room for the program itself, of which the collector knows nothing.
const heap = 20 << 20

// Export makes a policy the component's. Call it once, in an init function.
func Export(policy Policy) {
	debug.SetMemoryLimit(heap)
	exports.Exported = policy
}

// Log says something to the operator.
func Log(message string) {
	qosm_policy_log.Write(qosm_policy_log.LevelInfo, message)
}

// Some is a value for an optional field. The zero value of an option is none.
func Some[T any](value T) witTypes.Option[T] {
	return witTypes.Some(value)
}
