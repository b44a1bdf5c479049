"""Tasks that wait, are handed out with a lease, and have a result."""

from kizuna.coordination.queues.queue import Queue, Queues
from kizuna.coordination.queues.tasks import Delivery, Push, Task, TaskStatus

__all__ = ["Delivery", "Push", "Queue", "Queues", "Task", "TaskStatus"]
