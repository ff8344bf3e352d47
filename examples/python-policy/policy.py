"""A policy in Python. It slows containers of configured pods down before they reach their memory limit: memory.high at a percentage of it.

Above memory.high the kernel reclaims a container's memory and makes it wait, instead of ending it at the limit.
"""

import json
from dataclasses import dataclass

import qosm
from componentize_py_types import Err
from wit_world import exports
from wit_world.exports import lifecycle
from wit_world.imports import memory_protection as memory
from wit_world.imports.types import Container, Pod, Target_Container, Tick

SCHEMA = {
    "type": "object",
    "properties": {
        "percent": {
            "type": "integer",
            "minimum": 1,
            "maximum": 100,
            "description": "memory.high of each container, in percent of its memory limit",
        }
    },
}

CONFIG_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "leastLimitMib": {
            "type": "integer",
            "minimum": 0,
            "maximum": 1048576,
            "default": 0,
            "description": "containers with a memory limit below so many MiB are left alone",
        }
    },
}


@dataclass
class Asked:
    """The facts of a pod that the policy uses; `percent` is 0 if the pod is not configured."""

    percent: int
    containers: list[Container]


class Memory:
    """What the instance remembers: the pods, and the last memory.high of each container."""

    least_limit = 0
    pods: dict[int, Asked] = {}
    held: dict[int, int] = {}


class Lifecycle(exports.Lifecycle):
    """The host calls these methods. Each call has an object of its own, which remembers nothing."""

    def describe(self) -> lifecycle.Description:
        return lifecycle.Description(
            name="memory-high",
            version="0.1.0",
            summary="Slows containers down before they reach their memory limit.",
            protocol=lifecycle.Protocol(
                annotation_keys=["example.com/memory-high"],
                config_map_key="memory-high-config",
                class_field=None,
                namespace_list_key=None,
                defaults="{}",
                presets=[
                    lifecycle.Preset("auto", '{"percent": 80}', alone=False),
                    lifecycle.Preset("none", "{}", alone=True),
                ],
                schema=json.dumps(SCHEMA),
                node_only_fields=[],
            ),
            config_schema=json.dumps(CONFIG_SCHEMA),
            interval_msec=0,
            triggers=[],
        )

    @qosm.told
    def configure(self, config: str) -> None:
        least = json.loads(config).get("leastLimitMib", 0)
        if not isinstance(least, int):
            raise Err(f"leastLimitMib is {least!r}, not a whole number")
        Memory.least_limit = least << 20

    @qosm.told
    def pods(self, upserted: list[Pod], removed: list[int]) -> list[lifecycle.Rejection]:
        for pod in removed:
            Memory.pods.pop(pod, None)
        rejections = []
        for pod in upserted:
            percent = json.loads(pod.config).get("percent", 0)
            if percent and all(container.memory_limit_bytes is None for container in pod.containers):
                message = "no container of the pod has a memory limit; set resources.limits.memory"
                rejections.append(lifecycle.Rejection(pod=pod.id, field="percent", message=message))
            Memory.pods[pod.id] = Asked(percent, pod.containers)
        return rejections

    @qosm.told
    def evaluate(self, tick: Tick) -> None:
        """Sends changes since the last evaluation. The first evaluation of an instance sends all: the host releases other knobs."""
        held = {}
        for pod in Memory.pods.values():
            for container in pod.containers:
                target = Target_Container(container.id)
                high = self.high(pod.percent, container)
                if high:
                    held[container.id] = high
                if high == Memory.held.get(container.id, 0):
                    continue
                if high:
                    memory.set(target, high_at(high), f"{pod.percent} % of the memory limit")
                else:
                    memory.release(target)
        Memory.held = held

    def high(self, percent: int, container: Container) -> int:
        """The memory.high of a container; 0 if the policy leaves the container alone."""
        limit = container.memory_limit_bytes or 0
        if limit < Memory.least_limit:
            return 0
        return limit * percent // 100


def high_at(size: int) -> memory.Protection:
    return memory.Protection(None, None, memory.Bound_Bytes(size), None, None, None, None, None, None, None, None, None)


qosm.tidy()
