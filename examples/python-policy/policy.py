"""A policy in Python: memory.high at a share of each container's memory limit, for pods that ask for it.

A process that nears its limit is then slowed down and has to reclaim, instead of running into the OOM killer.
"""

import json
from dataclasses import dataclass

from wit_world import exports
from wit_world.exports import lifecycle
from wit_world.imports import memory_protection as memory
from wit_world.imports.types import Container, ContainerState, Pod, Target_Container, Tick

SCHEMA = {
    "type": "object",
    "properties": {
        "percent": {
            "type": "integer",
            "minimum": 10,
            "maximum": 100,
            "description": "where memory.high is, in percent of the container's memory limit",
        }
    },
}

CONFIG_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "smallestLimitMiB": {
            "type": "integer",
            "minimum": 0,
            "maximum": 1048576,
            "default": 64,
            "description": "containers with a lower memory limit are left alone",
        }
    },
}


@dataclass
class Asked:
    """What matters of a pod; `percent` is 0 where nobody asked."""

    percent: int
    containers: list[Container]


class Lifecycle(exports.Lifecycle):
    """Remembers the pods, and where it last put the memory.high of whom."""

    def __init__(self):
        self.smallest_limit = 64 << 20
        self.pods: dict[int, Asked] = {}
        self.held: dict[int, int] = {}

    def describe(self) -> lifecycle.Description:
        return lifecycle.Description(
            name="memory-high",
            version="0.1.0",
            summary="Slows containers down before they reach their memory limit.",
            protocol=lifecycle.Protocol(
                annotation_keys=["example.qosm.io/memoryHigh"],
                config_map_key=None,
                class_field=None,
                namespace_list_key=None,
                defaults="{}",
                presets=[],
                schema=json.dumps(SCHEMA),
                node_only_fields=[],
            ),
            config_schema=json.dumps(CONFIG_SCHEMA),
            interval_msec=0,
            triggers=[],
        )

    def configure(self, config: str) -> None:
        # The host has validated it against the schema.
        self.smallest_limit = json.loads(config).get("smallestLimitMiB", 64) << 20

    def pods(self, upserted: list[Pod], removed: list[int]) -> list[lifecycle.Rejection]:
        for pod in removed:
            self.pods.pop(pod, None)
        rejections = []
        for pod in upserted:
            percent = json.loads(pod.config).get("percent", 0)
            if percent and all(container.memory_limit_bytes is None for container in pod.containers):
                message = "no container of the pod has a memory limit to take it of: set `resources.limits.memory`"
                rejections.append(lifecycle.Rejection(pod=pod.id, field="percent", message=message))
            self.pods[pod.id] = Asked(percent, pod.containers)
        return rejections

    def evaluate(self, tick: Tick) -> None:
        """Says what is new since the last time. What an instance says first is all that it wants: the host releases the rest."""
        held = {}
        for pod in self.pods.values():
            for container in pod.containers:
                target = Target_Container(container.id)
                high = self.high(pod.percent, container)
                if high:
                    held[container.id] = high
                if high == self.held.get(container.id, 0):
                    continue
                if high:
                    memory.set(target, high_at(high), f"{pod.percent}% of the container's memory limit")
                else:
                    memory.release(target)
        self.held = held

    def high(self, percent: int, container: Container) -> int:
        """Where a container's memory.high should be; 0 where it is none of this policy's business."""
        limit = container.memory_limit_bytes or 0
        if container.state != ContainerState.RUNNING or limit < self.smallest_limit:
            return 0
        return limit * percent // 100


def high_at(size: int) -> memory.Protection:
    return memory.Protection(None, None, memory.Bound_Bytes(size), None, None, None, None, None, None, None, None, None)
