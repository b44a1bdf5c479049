"""Messages for whoever listens now, and for readers who come later."""

from kizuna.coordination.channels.channels import Channel, Channels, Garbled, Log, Message, Missed, Subscription
from kizuna.coordination.channels.durable import DurableChannel

__all__ = ["Channel", "Channels", "DurableChannel", "Garbled", "Log", "Message", "Missed", "Subscription"]
