"""The pure expansion of a DisaggregatedInference into the groups, Services and pods that are created for it.

A reader who wants to know which objects exist, what they are called, how they hang together and what environment a
container sees finds it here and nowhere else. Nothing in this package does I/O, reads a clock or draws a random
number: the same resource always gives the same objects, so the command line can print what the operator will create.
"""

from covey.compile.groups import Groups, Levels, Membership, identity_of, type_of
from covey.compile.identity import Owner, ReplicaKey, Slot
from covey.compile.layout import Layout, Scale, UnitCount
from covey.compile.pods import PodFactory
from covey.compile.revision import Revision, RoleRevision
from covey.compile.tree import Tree, compile_inference

__all__ = [
    "Groups",
    "Layout",
    "Levels",
    "Membership",
    "Owner",
    "PodFactory",
    "ReplicaKey",
    "Revision",
    "RoleRevision",
    "Scale",
    "Slot",
    "Tree",
    "UnitCount",
    "compile_inference",
    "identity_of",
    "type_of",
]
