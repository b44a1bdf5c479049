from kizuna.match.openmatch import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class BackfillInternal(_message.Message):
    __slots__ = ("backfill", "ticket_ids")
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    TICKET_IDS_FIELD_NUMBER: _ClassVar[int]
    backfill: _messages_pb2.Backfill
    ticket_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, backfill: _Optional[_Union[_messages_pb2.Backfill, _Mapping]] = ..., ticket_ids: _Optional[_Iterable[str]] = ...) -> None: ...
