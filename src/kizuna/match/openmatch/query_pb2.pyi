from kizuna.match.openmatch import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class QueryTicketsRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: _messages_pb2.Pool
    def __init__(self, pool: _Optional[_Union[_messages_pb2.Pool, _Mapping]] = ...) -> None: ...

class QueryTicketsResponse(_message.Message):
    __slots__ = ("tickets",)
    TICKETS_FIELD_NUMBER: _ClassVar[int]
    tickets: _containers.RepeatedCompositeFieldContainer[_messages_pb2.Ticket]
    def __init__(self, tickets: _Optional[_Iterable[_Union[_messages_pb2.Ticket, _Mapping]]] = ...) -> None: ...

class QueryTicketIdsRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: _messages_pb2.Pool
    def __init__(self, pool: _Optional[_Union[_messages_pb2.Pool, _Mapping]] = ...) -> None: ...

class QueryTicketIdsResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class QueryBackfillsRequest(_message.Message):
    __slots__ = ("pool",)
    POOL_FIELD_NUMBER: _ClassVar[int]
    pool: _messages_pb2.Pool
    def __init__(self, pool: _Optional[_Union[_messages_pb2.Pool, _Mapping]] = ...) -> None: ...

class QueryBackfillsResponse(_message.Message):
    __slots__ = ("backfills",)
    BACKFILLS_FIELD_NUMBER: _ClassVar[int]
    backfills: _containers.RepeatedCompositeFieldContainer[_messages_pb2.Backfill]
    def __init__(self, backfills: _Optional[_Iterable[_Union[_messages_pb2.Backfill, _Mapping]]] = ...) -> None: ...
