from google.protobuf import empty_pb2 as _empty_pb2
from kizuna.match.openmatch import messages_pb2 as _messages_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateTicketRequest(_message.Message):
    __slots__ = ("ticket",)
    TICKET_FIELD_NUMBER: _ClassVar[int]
    ticket: _messages_pb2.Ticket
    def __init__(self, ticket: _Optional[_Union[_messages_pb2.Ticket, _Mapping]] = ...) -> None: ...

class DeleteTicketRequest(_message.Message):
    __slots__ = ("ticket_id",)
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    def __init__(self, ticket_id: _Optional[str] = ...) -> None: ...

class GetTicketRequest(_message.Message):
    __slots__ = ("ticket_id",)
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    def __init__(self, ticket_id: _Optional[str] = ...) -> None: ...

class WatchAssignmentsRequest(_message.Message):
    __slots__ = ("ticket_id",)
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    def __init__(self, ticket_id: _Optional[str] = ...) -> None: ...

class WatchAssignmentsResponse(_message.Message):
    __slots__ = ("assignment",)
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    assignment: _messages_pb2.Assignment
    def __init__(self, assignment: _Optional[_Union[_messages_pb2.Assignment, _Mapping]] = ...) -> None: ...

class AcknowledgeBackfillRequest(_message.Message):
    __slots__ = ("backfill_id", "assignment")
    BACKFILL_ID_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_FIELD_NUMBER: _ClassVar[int]
    backfill_id: str
    assignment: _messages_pb2.Assignment
    def __init__(self, backfill_id: _Optional[str] = ..., assignment: _Optional[_Union[_messages_pb2.Assignment, _Mapping]] = ...) -> None: ...

class AcknowledgeBackfillResponse(_message.Message):
    __slots__ = ("backfill", "tickets")
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    TICKETS_FIELD_NUMBER: _ClassVar[int]
    backfill: _messages_pb2.Backfill
    tickets: _containers.RepeatedCompositeFieldContainer[_messages_pb2.Ticket]
    def __init__(self, backfill: _Optional[_Union[_messages_pb2.Backfill, _Mapping]] = ..., tickets: _Optional[_Iterable[_Union[_messages_pb2.Ticket, _Mapping]]] = ...) -> None: ...

class CreateBackfillRequest(_message.Message):
    __slots__ = ("backfill",)
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    backfill: _messages_pb2.Backfill
    def __init__(self, backfill: _Optional[_Union[_messages_pb2.Backfill, _Mapping]] = ...) -> None: ...

class DeleteBackfillRequest(_message.Message):
    __slots__ = ("backfill_id",)
    BACKFILL_ID_FIELD_NUMBER: _ClassVar[int]
    backfill_id: str
    def __init__(self, backfill_id: _Optional[str] = ...) -> None: ...

class GetBackfillRequest(_message.Message):
    __slots__ = ("backfill_id",)
    BACKFILL_ID_FIELD_NUMBER: _ClassVar[int]
    backfill_id: str
    def __init__(self, backfill_id: _Optional[str] = ...) -> None: ...

class UpdateBackfillRequest(_message.Message):
    __slots__ = ("backfill",)
    BACKFILL_FIELD_NUMBER: _ClassVar[int]
    backfill: _messages_pb2.Backfill
    def __init__(self, backfill: _Optional[_Union[_messages_pb2.Backfill, _Mapping]] = ...) -> None: ...

class DeindexTicketRequest(_message.Message):
    __slots__ = ("ticket_id",)
    TICKET_ID_FIELD_NUMBER: _ClassVar[int]
    ticket_id: str
    def __init__(self, ticket_id: _Optional[str] = ...) -> None: ...

class DeindexTicketResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
