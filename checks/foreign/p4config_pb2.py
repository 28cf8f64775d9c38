# SPDX-License-Identifier: Apache-2.0
"""PI's message p4.tmp.P4DeviceConfig, which scripts import as `p4.tmp.p4config_pb2` and PyPI's p4runtime lacks.

tools/install.sh foreign puts it there, into the clients' own environment."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_file = descriptor_pb2.FileDescriptorProto(name="p4/tmp/p4config.proto", package="p4.tmp", syntax="proto3")
_message = _file.message_type.add(name="P4DeviceConfig")
for _name, _number, _type in (("reassign", 1, "TYPE_BOOL"), ("device_data", 3, "TYPE_BYTES")):
    _message.field.add(
        name=_name,
        number=_number,
        type=getattr(descriptor_pb2.FieldDescriptorProto, _type),
        label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
    )
_pool = descriptor_pool.Default()
_pool.Add(_file)
P4DeviceConfig = message_factory.MessageFactory(_pool).GetPrototype(
    _pool.FindMessageTypeByName("p4.tmp.P4DeviceConfig")
)
