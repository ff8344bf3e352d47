// A policy in Go. It slows containers of configured pods down before they reach their memory limit: memory.high at a percentage of it.
//
// Above memory.high the kernel reclaims a container's memory and makes it wait, instead of ending it at the limit.
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/qosm/qosm/sdk/go"
	memory "github.com/qosm/qosm/sdk/go/bindings/qosm_policy_memory_protection"
	types "github.com/qosm/qosm/sdk/go/bindings/qosm_policy_types"
)

func init() { qosm.Export(&policy{pods: map[qosm.PodID]pod{}}) }

func main() {}

// policy is what the instance remembers: the pods, and the last memory.high of each container.
type policy struct {
	config config
	pods   map[qosm.PodID]pod
	held   map[qosm.ContainerID]uint64
}

// config is the operator's configuration.
type config struct {
	LeastLimitMib uint64 `json:"leastLimitMib"`
}

// request is a pod's configuration; the schema excludes a percentage of 0, which here means that the pod is not configured.
type request struct {
	Percent uint64 `json:"percent"`
}

// pod has the facts of a pod that the policy uses; percent is 0 if the pod is not configured.
type pod struct {
	percent    uint64
	containers []qosm.Container
}

func (p *policy) Describe() qosm.Description {
	return qosm.Description{
		Name:    "memory-high",
		Version: "0.1.0",
		Summary: "Slows containers down before they reach their memory limit.",
		Protocol: qosm.Some(qosm.Protocol{
			AnnotationKeys: []string{"example.com/memory-high"},
			ConfigMapKey:   qosm.Some("memory-high-config"),
			Defaults:       `{}`,
			Presets: []qosm.Preset{
				{Policy: "auto", Values: `{"percent": 80}`},
				{Policy: "none", Values: `{}`, Alone: true},
			},
			Schema: `{"type": "object", "properties": {
				"percent": {"type": "integer", "minimum": 1, "maximum": 100,
					"description": "memory.high of each container, in percent of its memory limit"}}}`,
		}),
		ConfigSchema: qosm.Some(`{"type": "object", "additionalProperties": false, "properties": {
			"leastLimitMib": {"type": "integer", "minimum": 0, "maximum": 1048576, "default": 0,
				"description": "containers with a memory limit below so many MiB are left alone"}}}`),
	}
}

func (p *policy) Configure(text string) error {
	var read config
	if err := json.Unmarshal([]byte(text), &read); err != nil {
		return fmt.Errorf("the configuration cannot be used: %w", err)
	}
	p.config = read
	return nil
}

func (p *policy) Pods(upserted []qosm.Pod, removed []qosm.PodID) ([]qosm.Rejection, error) {
	for _, id := range removed {
		delete(p.pods, id)
	}
	var rejections []qosm.Rejection
	for _, facts := range upserted {
		var asked request
		if err := json.Unmarshal([]byte(facts.Config), &asked); err != nil {
			rejections = append(rejections, qosm.Rejection{Pod: facts.Id, Field: "percent", Message: err.Error()})
		} else if asked.Percent > 0 && !slices.ContainsFunc(facts.Containers, isLimited) {
			rejections = append(rejections, qosm.Rejection{Pod: facts.Id, Field: "percent",
				Message: "no container of the pod has a memory limit; set resources.limits.memory"})
		}
		p.pods[facts.Id] = pod{percent: asked.Percent, containers: facts.Containers}
	}
	return rejections, nil
}

func isLimited(container qosm.Container) bool {
	return container.MemoryLimitBytes.IsSome()
}

// Evaluate sends changes since the last evaluation. The first evaluation of an instance sends all: the host releases other knobs.
func (p *policy) Evaluate(qosm.Tick) error {
	held := map[qosm.ContainerID]uint64{}
	for _, id := range slices.Sorted(maps.Keys(p.pods)) {
		pod := p.pods[id]
		for _, container := range pod.containers {
			target := types.MakeTargetContainer(container.Id)
			high := p.high(pod.percent, container)
			switch {
			case high == p.held[container.Id]:
			case high == 0:
				memory.Release(target)
			default:
				protection := memory.Protection{High: qosm.Some(memory.MakeBoundBytes(high))}
				memory.Set(target, protection, fmt.Sprintf("%d %% of the memory limit", pod.percent))
			}
			if high > 0 {
				held[container.Id] = high
			}
		}
	}
	p.held = held
	return nil
}

// high returns the memory.high of a container; 0 if the policy leaves the container alone.
func (p *policy) high(percent uint64, container qosm.Container) uint64 {
	limit := container.MemoryLimitBytes.SomeOr(0)
	if limit < p.config.LeastLimitMib<<20 {
		return 0
	}
	return limit/100*percent + limit%100*percent/100
}
