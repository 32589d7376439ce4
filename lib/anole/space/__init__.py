"""Search spaces: knobs, configs, index vectors and features."""

from anole.space.knob import Knob, option_knob, split_knob
from anole.space.space import Constraint, Space

__all__ = ["Constraint", "Knob", "Space", "option_knob", "split_knob"]
