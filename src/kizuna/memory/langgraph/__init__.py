"""Memory as a store of LangGraph. Needs the extra `kizuna[langgraph]`."""

from kizuna.memory.langgraph.store import KizunaStore

__all__ = ["KizunaStore"]
