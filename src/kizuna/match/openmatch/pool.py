"""Where our messages are known.

Not the pool that everybody shares: there, a second set of stubs for Open Match would be refused,
and with it the program that loads both.
"""

from __future__ import annotations

from google.protobuf import any_pb2, descriptor_pool, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2

POOL = descriptor_pool.DescriptorPool()
for known in (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
    POOL.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
