"""Diagnosis of installed plugins: each is imported in a process of its own, and metadata is held against the source."""

from core.plugins.doctor.environment import examine_environment
from core.plugins.doctor.finding import Finding
from core.plugins.doctor.host import examine

__all__ = ["Finding", "examine", "examine_environment"]
