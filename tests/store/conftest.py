from __future__ import annotations

from ..merge.conftest import new_project, project

__all__ = ["new_project", "project"]
