"""The assignors by their names."""

from collections.abc import Mapping

from headrace.client.consumer.assignors.cooperative_sticky import assign_cooperative_sticky
from headrace.client.consumer.assignors.member import Assignor
from headrace.client.consumer.assignors.names import COOPERATIVE_STICKY, RANGE, ROUND_ROBIN, STICKY
from headrace.client.consumer.assignors.range_assignor import assign_range
from headrace.client.consumer.assignors.round_robin import assign_round_robin
from headrace.client.consumer.assignors.sticky import assign_sticky

ASSIGNORS: Mapping[str, Assignor] = {
    RANGE: assign_range,
    ROUND_ROBIN: assign_round_robin,
    STICKY: assign_sticky,
    COOPERATIVE_STICKY: assign_cooperative_sticky,
}
