"""Search spaces: knobs, configs, index vectors and features."""

from anole.space.knob import ALGORITHM, Knob, covering_knob, option_knob, split_knob
from anole.space.space import Constraint, Space
from anole.space.union import union

__all__ = ["ALGORITHM", "Constraint", "Knob", "Space", "covering_knob", "option_knob", "split_knob", "union"]
