"""The assignors of consumer groups by the names that `group.consumer.assignors` and members give them."""

from collections.abc import Mapping

from headrace.coordinators.assignors.assignor import PartitionAssignor
from headrace.coordinators.assignors.range_assignor import assign_range
from headrace.coordinators.assignors.uniform import assign_uniform

CONSUMER_ASSIGNORS: Mapping[str, PartitionAssignor] = {"uniform": assign_uniform, "range": assign_range}
