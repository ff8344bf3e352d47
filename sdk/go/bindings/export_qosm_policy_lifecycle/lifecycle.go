// Package export_qosm_policy_lifecycle is what the generated exports call: it hands each call on to the policy. Unlike its
// neighbours it is written by hand.
package export_qosm_policy_lifecycle

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/qosm/qosm/sdk/go/bindings/qosm_policy_lifecycle"
	"github.com/qosm/qosm/sdk/go/bindings/qosm_policy_log"
	"github.com/qosm/qosm/sdk/go/bindings/qosm_policy_types"
	witTypes "go.bytecodealliance.org/pkg/wit/types"
)

// Policy is the contract's interface `lifecycle` in Go's words.
type Policy interface {
	Describe() qosm_policy_lifecycle.Description
	Configure(config string) error
	Pods(upserted []qosm_policy_types.Pod, removed []qosm_policy_types.PodId) ([]qosm_policy_lifecycle.Rejection, error)
	Evaluate(tick qosm_policy_types.Tick) error
}

// Exported is the component's policy; set before the host calls anything.
var Exported Policy

// Describe may not call an import, so a panic in it says nothing but that it happened.
func Describe() qosm_policy_lifecycle.Description {
	return Exported.Describe()
}

func Configure(config string) witTypes.Result[witTypes.Unit, string] {
	defer tell()
	return done(Exported.Configure(config))
}

func Pods(upserted []qosm_policy_types.Pod, removed []qosm_policy_types.PodId) witTypes.Result[[]qosm_policy_lifecycle.Rejection, string] {
	defer tell()
	rejections, err := Exported.Pods(upserted, removed)
	if err != nil {
		return witTypes.Err[[]qosm_policy_lifecycle.Rejection](err.Error())
	}
	return witTypes.Ok[[]qosm_policy_lifecycle.Rejection, string](rejections)
}

func Evaluate(tick qosm_policy_types.Tick) witTypes.Result[witTypes.Unit, string] {
	defer tell()
	return done(Exported.Evaluate(tick))
}

func done(err error) witTypes.Result[witTypes.Unit, string] {
	if err != nil {
		return witTypes.Err[witTypes.Unit](err.Error())
	}
	return witTypes.Ok[witTypes.Unit, string](witTypes.Unit{})
}

// tell logs a panic and lets it go on: what Go prints of it goes nowhere, and a policy that panicked is not to be called again,
// which the trap sees to.
func tell() {
	if panicked := recover(); panicked != nil {
		qosm_policy_log.Write(qosm_policy_log.LevelWarn, fmt.Sprintf("panic: %v%s", panicked, where()))
		panic(panicked)
	}
}

// where has the files and lines from which a panic came, the innermost first.
func where() string {
	var at strings.Builder
	callers := make([]uintptr, 16)
	// Those of runtime.Callers, where and tell are not the policy's.
	frames := runtime.CallersFrames(callers[:runtime.Callers(3, callers)])
	for {
		frame, more := frames.Next()
		if frame.File != "" && !strings.HasPrefix(frame.Function, "runtime.") {
			fmt.Fprintf(&at, " at %s:%d", frame.File, frame.Line)
		}
		if !more {
			return at.String()
		}
	}
}
