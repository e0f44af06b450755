"""Workloads of other projects as DisaggregatedInferences.

Pure: a document goes in, a DisaggregatedInference and remarks come out. One module for each kind of source takes the
fields it understands; whatever is left over is remarked on by its path, so that nothing is dropped in silence.
"""

from covey.convert.fields import Levels
from covey.convert.kinds import KINDS, Converted, convert
from covey.convert.remarks import ConversionError, Remark

__all__ = ["KINDS", "ConversionError", "Converted", "Levels", "Remark", "convert"]
