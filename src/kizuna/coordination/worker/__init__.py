"""A program that runs tasks."""

from kizuna.coordination.worker.handlers import Failed, GiveUp, RetryIn
from kizuna.coordination.worker.programs import Program
from kizuna.coordination.worker.worker import Worker

__all__ = ["Failed", "GiveUp", "Program", "RetryIn", "Worker"]
