"""A program that runs tasks."""

from kizuna.coordination.handlers import Failed
from kizuna.coordination.worker.handlers import GiveUp, RetryIn
from kizuna.coordination.worker.programs import Program
from kizuna.coordination.worker.worker import Worker

__all__ = ["Failed", "GiveUp", "Program", "RetryIn", "Worker"]
